# TRI_DEP_HDF5: checkpoints and corpora.
AC_DEFUN([TRI_DEP_HDF5], [
  TRI_LIBRARY([HDF5], [hdf5], [hdf5-openmpi hdf5-mpich hdf5-mpi hdf5], [#include <hdf5.h>],
    [return H5open() < 0;], [-lhdf5], [HDF5 1.10 or later, for checkpoints and corpora])
])
