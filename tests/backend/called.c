/* called.c - a library with functions to be counted and timed; see caller.c. */
#include <stdint.h>
#include <time.h>

volatile uint64_t called_sink;

double called_tick(int unused, double x,
                   double y); /* its arguments travel in both kinds of registers */
double called_tick(int unused, double x, double y)
{
    (void)unused;
    return x + y;
}

static double processor_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static __attribute__((noinline)) void spin(double seconds)
{
    double end = processor_s() + seconds;

    while (processor_s() < end)
        for (int i = 0; i < 20000; i++)
            called_sink += (uint64_t)i;
    called_sink++; /* no tail call */
}

void called_eighty(double seconds);
void called_eighty(double seconds)
{
    spin(0.8 * seconds);
    called_sink++;
}

void called_twenty(double seconds);
void called_twenty(double seconds)
{
    spin(0.2 * seconds);
    called_sink++;
}
