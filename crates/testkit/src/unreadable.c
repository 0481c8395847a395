/* Makes blocks of a program's image unreadable until they are written: reading one ends with EIO. For `LD_PRELOAD`; the blocks are in
 * UNREADABLE, separated by commas. Those that are written go to the file WRITTEN, one a line. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BLOCK = 4096, MOST = 16 };
static long long bad[MOST];
static int count = -1;

static void start(void) {
    const char *text = getenv("UNREADABLE");
    for (count = 0; text && *text && count < MOST; count++) {
        char *end;
        bad[count] = strtoll(text, &end, 10);
        text = *end ? end + 1 : end;
    }
}

/* Where a file that is large enough to be the image goes on; -1 for any other. */
static long long place(int fd) {
    struct stat stat;
    if (count < 0)
        start();
    return fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode) && stat.st_size >= 1 << 24 ? lseek(fd, 0, SEEK_CUR) : -1;
}

ssize_t read(int fd, void *buffer, size_t len) {
    long long at = place(fd);
    for (int i = 0; at >= 0 && i < count; i++)
        if (bad[i] * BLOCK < at + (long long)len && at < (bad[i] + 1) * BLOCK) {
            errno = EIO;
            return -1;
        }
    return syscall(SYS_read, fd, buffer, len);
}

static void note(long long block) {
    FILE *file = fopen(getenv("WRITTEN"), "a");
    if (file) {
        fprintf(file, "%lld\n", block);
        fclose(file);
    }
}

ssize_t write(int fd, const void *buffer, size_t len) {
    long long at = place(fd);
    ssize_t done = syscall(SYS_write, fd, buffer, len);
    for (int i = 0; at >= 0 && i < count; i++)
        if (at <= bad[i] * BLOCK && (bad[i] + 1) * BLOCK <= at + (long long)done) {
            note(bad[i]);
            bad[i] = -2;
        }
    return done;
}
