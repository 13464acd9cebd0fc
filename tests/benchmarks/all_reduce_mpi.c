/* As all_reduce.cpp, for MPI: "mpi bytes median_us". Compiled and started by all_reduce.py where there is one. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double median_time(float* data, int count, int rank, int ranks) {
  const long bytes = (long)count * 4;
  const int repeats = bytes >= (16 << 20) ? 7 : bytes >= (1 << 20) ? 30 : 150;
  double times[150];
  for (int i = 0; i < repeats + 3; ++i) {
    for (int k = 0; k < count; ++k) data[k] = (float)(rank + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begun = MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (i >= 3) times[i - 3] = (MPI_Wtime() - begun) * 1e6;
  }
  if (data[count - 1] != (float)(ranks * (ranks + 1) / 2)) MPI_Abort(MPI_COMM_WORLD, 1);
  qsort(times, (size_t)repeats, sizeof(double), compare);
  return times[repeats / 2];
}

int main(int count, char** words) {
  int rank, ranks;
  MPI_Init(&count, &words);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (long bytes = 4 << 10; bytes <= (64 << 20); bytes *= 4) {
    float* data = malloc((size_t)bytes);
    const double time = median_time(data, (int)(bytes / 4), rank, ranks);
    if (rank == 0) printf("mpi %ld %.2f\n", bytes, time);
    free(data);
  }
  MPI_Finalize();
  return 0;
}
