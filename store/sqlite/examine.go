package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/doctor"
	"github.com/holdfastq/holdfast/store"
)

var _ doctor.StoreChecker = (*Store)(nil)

const (
	lowSpace      = 1 << 30  // bytes; below this limit, the check warns
	criticalSpace = 64 << 20 // bytes; the write-ahead log alone may need this much in a burst
)

// Settings implements doctor.StoreChecker. It reads the whole file.
func (s *Store) Settings(ctx context.Context) ([]doctor.Check, error) {
	file, err := s.fileCheck(ctx)
	if err != nil {
		return nil, err
	}
	folder := filepath.Dir(s.path)
	free, known := freeBytes(folder)
	return []doctor.Check{file, folderCheck(folder, networkFileSystem(folder), probe(folder)), diskCheck(folder, free, known), logCheck(s.path)}, nil
}

// longLog is the size of a write-ahead log above which the check warns. A burst leaves at most journal_size_limit, see
// writing, so a longer log has a reader that keeps it.
const longLog = 256 << 20

// WALSize returns the size of the write-ahead log in bytes, and whether it is so long that a program probably reads an old
// state of the file. It reads only the length of a file.
func (s *Store) WALSize() (bytes int64, long bool) {
	bytes = size(s.path + "-wal")
	return bytes, bytes > longLog
}

// logCheck warns if the write-ahead log grows because a program reads an old state of the file.
func logCheck(path string) doctor.Check {
	bytes := size(path + "-wal")
	c := doctor.Check{Name: "store wal", Severity: doctor.OK, Detail: megabytes(uint64(bytes)) + " in the write-ahead log"}
	if bytes > longLog {
		c.Severity = doctor.Warning
		c.Detail += ", probably because a program reads an old state of the file"
		if holders := holdersOf(path); holders != "" {
			c.Detail += "; these processes have the file open: " + holders
		}
		c.Remedy = holdfast.Advice("end the program that reads the file, such as a backup, or a shell of sqlite3 with an open transaction; to find it: fuser -v " + strconv.Quote(path))
	}
	return c
}

func (s *Store) fileCheck(ctx context.Context) (doctor.Check, error) {
	c := doctor.Check{Name: "store file", Severity: doctor.OK}
	if err := s.checkFile(ctx); err != nil {
		return doctor.Failure("store file", err, holdfast.HintOf(err)), nil
	}
	problems, err := list[struct{ Problem string }](ctx, s, "check the database", "quick_check")
	if err != nil {
		return c, err
	}
	c.Detail = "no damage found, " + megabytes(uint64(size(s.path)))
	if len(problems) > 0 && problems[0].Problem != "ok" {
		c.Severity, c.Detail = doctor.Failed, "the file is damaged: "+problems[0].Problem
		c.Remedy = holdfast.Hint{Kind: holdfast.HintRestoreDatabase, Arg: s.path}
	}
	return c, nil
}

// size returns the size of a file in bytes, or 0 if it is unknown.
func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// probe creates a file in the folder and removes it. SQLite does the same with the files beside the database.
func probe(folder string) error {
	file, err := os.CreateTemp(folder, ".holdfast-probe-")
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}

func folderCheck(folder, network string, writing error) doctor.Check {
	c := doctor.Check{Name: "store folder", Severity: doctor.OK, Detail: folder + ", on a disk of this machine"}
	switch {
	case network != "":
		c.Severity, c.Detail = doctor.Failed, fmt.Sprintf("%s is on a network file system (%s), where locks do not work reliably and tasks can be lost", folder, network)
		c.Remedy = holdfast.Advice("move the file to a disk of this machine, or use PostgreSQL")
	case errors.Is(writing, fs.ErrPermission):
		c.Severity, c.Detail = doctor.Failed, "this user cannot write to "+folder
		c.Remedy = holdfast.Advice("run as the user that owns the folder, or give this user the right to write to it")
	case writing != nil:
		c.Severity, c.Detail, c.Remedy = doctor.Failed, "no file can be written: "+writing.Error(), holdfast.Advice("free space, or mount the disk writable")
	}
	return c
}

func diskCheck(folder string, free uint64, known bool) doctor.Check {
	c := doctor.Check{Name: "store disk", Severity: doctor.OK, Detail: megabytes(free) + " free"}
	switch {
	case !known:
		c.Severity, c.Detail, c.Remedy = doctor.Skipped, "this system does not report the free space", holdfast.Advice("check it with: df "+folder)
	case free < criticalSpace:
		c.Severity, c.Remedy = doctor.Failed, holdfast.Advice("free space on the disk of "+folder)
	case free < lowSpace:
		c.Severity, c.Remedy = doctor.Warning, holdfast.Advice("free space on the disk of "+folder)
	}
	return c
}

func megabytes(n uint64) string { return fmt.Sprintf("%d MB", n/1_000_000) }

// Janitors implements doctor.StoreChecker.
func (s *Store) Janitors(ctx context.Context, age time.Duration) (doctor.Janitors, error) {
	now := s.now().UnixMicro()
	rows, err := list[doctor.Janitors](ctx, s, "read the janitors' progress", "janitors", now, age.Microseconds())
	if err != nil || len(rows) == 0 {
		return doctor.Janitors{}, err
	}
	rows[0].Failing, err = list[store.DutyFailure](ctx, s, "read the failing duties", "failing_duties", now)
	return rows[0], err
}
