// What streams of the CUDA backend may do, and what is a race: built and run by stream_races.sh
// under ThreadSanitizer, where every stream is a logical thread that only events and waits order
// with others and with the host. Case by name: right_* must be silent, the others reported.
#include "test.h"
#include "trireme/device/device.h"

enum { N = 512, BYTES = N * sizeof(float) };

static tri_device *device;
static const tri_kernels *k;
static tri_stream *compute, *copies;
static tri_event *event;
static float *x, *y; // device
static float *host;  // pinned

#define OK(call) \
  do { \
    if ((call) != TRI_OK) { \
      fprintf(stderr, "%s: %s\n", #call, tri_error_message()); \
      exit(1); \
    } \
  } while (0)

// One stream makes x, another one takes it away.
static void hand_over(bool ordered)
{
  OK(k->fill(compute, x, 2.0f, N));
  if (ordered) {
    OK(tri_event_record(event, compute));
    OK(tri_event_wait(event, copies));
  }
  OK(tri_stream_copy_to_host(copies, host, x, BYTES));
  OK(tri_stream_synchronize(copies));
}

static void right_event(void)
{
  hand_over(true);
}

static void missing_wait(void)
{
  hand_over(false);
}

// The host reads what a stream brings.
static void bring(bool waits)
{
  OK(k->fill(compute, x, 3.0f, N));
  OK(tri_stream_copy_to_host(compute, host, x, BYTES));
  if (waits) OK(tri_stream_synchronize(compute));
  fprintf(stderr, "%g\n", (double)host[N - 1]);
}

static void right_synchronize(void)
{
  bring(true);
}

static void missing_synchronize(void)
{
  bring(false);
}

// The host fills the memory again that a copy is taken from.
static void send_twice(bool waits)
{
  for (int i = 0; i < 2; i++) {
    if (waits && i > 0) OK(tri_event_synchronize(event));
    for (int j = 0; j < N; j++)
      host[j] = (float)i;
    OK(tri_stream_copy_to_device(copies, x, host, BYTES));
    OK(tri_event_record(event, copies));
  }
  OK(tri_stream_synchronize(copies));
}

static void right_refill(void)
{
  send_twice(true);
}

static void early_refill(void)
{
  send_twice(false);
}

// A stream writes again what another one still reads.
static void reuse(bool waits)
{
  OK(k->fill(compute, x, 1.0f, N));
  OK(tri_event_record(event, compute));
  OK(tri_event_wait(event, copies));
  OK(tri_stream_copy_on_device(copies, y, x, BYTES));
  if (waits) {
    OK(tri_event_record(event, copies));
    OK(tri_event_wait(event, compute));
  }
  OK(k->fill(compute, x, 4.0f, N));
  OK(tri_stream_synchronize(compute));
  OK(tri_stream_synchronize(copies));
}

static void right_reuse(void)
{
  reuse(true);
}

static void early_reuse(void)
{
  reuse(false);
}

static const struct {
  const char *name;
  void (*body)(void);
} cases[] = {{"right_event", right_event},
             {"missing_wait", missing_wait},
             {"right_synchronize", right_synchronize},
             {"missing_synchronize", missing_synchronize},
             {"right_refill", right_refill},
             {"early_refill", early_refill},
             {"right_reuse", right_reuse},
             {"early_reuse", early_reuse}};

int main(int argc, char **argv)
{
  if (argc != 2) return 2;
  OK(tri_device_open("cuda", NULL, &device));
  k = tri_device_kernels(device);
  OK(tri_stream_create(device, &compute));
  OK(tri_stream_create(device, &copies));
  OK(tri_event_create(device, &event));
  OK(tri_device_alloc(device, BYTES, (void **)&x));
  OK(tri_device_alloc(device, BYTES, (void **)&y));
  OK(tri_device_alloc_host(device, BYTES, (void **)&host));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (strcmp(cases[i].name, argv[1]) == 0) cases[i].body();
  tri_device_free_host(device, (void **)&host);
  tri_device_free(device, (void **)&y);
  tri_device_free(device, (void **)&x);
  tri_event_destroy(&event);
  tri_stream_destroy(&copies);
  tri_stream_destroy(&compute);
  tri_device_close(&device);
  return 0;
}
