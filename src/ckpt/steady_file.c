#include "ckpt/steady_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trireme/base/hdf5_error.h"

// HDF5 1.14 moved the interface of drivers to a header of its own and numbered it.
#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

// What HDF5 holds for an open file.
typedef struct opened {
  H5FD_t common; // first: HDF5 sees only this
  haddr_t end_of_allocation;
  tri_steady_file *file;
} opened;

static H5FD_t *driver_open(const char *name, unsigned flags, hid_t access, haddr_t max_address)
{
  (void)name;
  (void)flags;
  (void)max_address;
  tri_steady_file *const *info = H5Pget_driver_info(access);
  opened *o = calloc(1, sizeof *o); // HDF5's, not ours: it outlives no call of ours
  if (info == NULL || o == NULL) {
    free(o);
    return NULL;
  }
  o->file = *info;
  return &o->common;
}

static herr_t driver_close(H5FD_t *file)
{
  free(file);
  return 0;
}

static herr_t driver_query(const H5FD_t *file, unsigned long *flags)
{
  (void)file;
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA;
  return 0;
}

static haddr_t driver_get_eoa(const H5FD_t *file, H5FD_mem_t type)
{
  (void)type;
  return ((const opened *)file)->end_of_allocation;
}

static herr_t driver_set_eoa(H5FD_t *file, H5FD_mem_t type, haddr_t address)
{
  (void)type;
  ((opened *)file)->end_of_allocation = address;
  return 0;
}

static haddr_t driver_get_eof(const H5FD_t *file, H5FD_mem_t type)
{
  (void)type;
  return (haddr_t)((const opened *)file)->file->end;
}

static void remember(tri_steady_file *file, int error, int64_t place)
{
  if (file->error != 0) return;
  file->error = error;
  file->place = place;
}

// Beyond the end of the file there are zeros, as in HDF5's own driver.
static herr_t driver_read(H5FD_t *driver, H5FD_mem_t type, hid_t transfer, haddr_t address,
                          size_t size, void *buffer)
{
  (void)type;
  (void)transfer;
  tri_steady_file *file = ((opened *)driver)->file;
  size_t used = 0;
  while (used < size) {
    const ssize_t n = pread(file->fd, (char *)buffer + used, size - used, (off_t)(address + used));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) remember(file, errno, (int64_t)(address + used));
    if (n <= 0) break;
    used += (size_t)n;
  }
  memset((char *)buffer + used, 0, size - used);
  return 0;
}

static herr_t driver_write(H5FD_t *driver, H5FD_mem_t type, hid_t transfer, haddr_t address,
                           size_t size, const void *buffer)
{
  (void)type;
  (void)transfer;
  tri_steady_file *file = ((opened *)driver)->file;
  for (size_t used = 0; used < size && file->error == 0;) {
    const ssize_t n =
        pwrite(file->fd, (const char *)buffer + used, size - used, (off_t)(address + used));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) remember(file, n < 0 ? errno : EIO, (int64_t)(address + used));
    if (n > 0) used += (size_t)n;
  }
  if ((int64_t)(address + size) > file->end) file->end = (int64_t)(address + size);
  return 0;
}

static herr_t driver_truncate(H5FD_t *driver, hid_t transfer, hbool_t closing)
{
  (void)transfer;
  (void)closing;
  opened *o = (opened *)driver;
  const int64_t end = (int64_t)o->end_of_allocation;
  if (end == o->file->end) return 0;
  if (o->file->error == 0 && ftruncate(o->file->fd, (off_t)end) != 0) remember(o->file, errno, end);
  o->file->end = end;
  return 0;
}

static const H5FD_class_t driver_class = {
#if H5_VERSION_GE(1, 13, 0)
    .version = H5FD_CLASS_VERSION,
    .value = (H5FD_class_value_t)(H5_VFD_RESERVED + 1),
#endif
    .name = "steady",
    .maxaddr = INT64_MAX,
    .fc_degree = H5F_CLOSE_STRONG,
    .fapl_size = sizeof(tri_steady_file *),
    .open = driver_open,
    .close = driver_close,
    .query = driver_query,
    .get_eoa = driver_get_eoa,
    .set_eoa = driver_set_eoa,
    .get_eof = driver_get_eof,
    .read = driver_read,
    .write = driver_write,
    .truncate = driver_truncate,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

tri_status tri_steady_file_create(const char *path, tri_steady_file *file, hid_t *access)
{
  tri_status status = TRI_OK;
  hid_t driver = -1, list = -1;
  const tri_steady_file *info = file;
  tri_hdf5_quiet();
  *file = (tri_steady_file){.fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644)};
  TRI_CHECK(file->fd >= 0, TRI_ERR_IO, "%s: cannot be made: %s", path, strerror(errno));
  driver = H5FDregister(&driver_class);
  TRI_CHECK_HDF5_GOTO(err_close, driver >= 0, TRI_ERR_IO, "%s: no HDF5 driver", path);
  list = H5Pcreate(H5P_FILE_ACCESS);
  TRI_CHECK_HDF5_GOTO(err_close, list >= 0, TRI_ERR_IO, "%s: no HDF5 access list", path);
  TRI_CHECK_HDF5_GOTO(err_close, H5Pset_driver(list, driver, &info) >= 0, TRI_ERR_IO,
                      "%s: no HDF5 access list", path);
  // The list and the files opened through it keep the driver alive.
  (void)H5FDunregister(driver);
  *access = list;
  return TRI_OK;

err_close:
  if (list >= 0) (void)H5Pclose(list);
  if (driver >= 0) (void)H5FDunregister(driver);
  close(file->fd);
  file->fd = -1;
  return status;
}

tri_status tri_steady_file_check(const char *path, const tri_steady_file *file)
{
  TRI_CHECK(file->error == 0, TRI_ERR_IO, "%s: writing failed at byte %lld: %s", path,
            (long long)file->place, strerror(file->error));
  return TRI_OK;
}

tri_status tri_steady_file_finish(const char *path, tri_steady_file *file)
{
  if (file->error == 0 && fsync(file->fd) != 0) remember(file, errno, file->end);
  if (close(file->fd) != 0) remember(file, errno, file->end);
  file->fd = -1;
  return tri_steady_file_check(path, file);
}
