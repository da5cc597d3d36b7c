package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/doctor"
)

var _ doctor.StoreChecker = (*Store)(nil)

const (
	scarce = 1 << 30  // bytes: time to make room
	little = 64 << 20 // bytes: what the file of changes alone may grow to in a burst
)

// Settings implements doctor.StoreChecker. It reads the whole file.
func (s *Store) Settings(ctx context.Context) ([]doctor.Check, error) {
	file, err := s.fileCheck(ctx)
	if err != nil {
		return nil, err
	}
	folder := filepath.Dir(s.path)
	free, known := freeBytes(folder)
	return []doctor.Check{file, folderCheck(folder, networkFileSystem(folder), probe(folder)), diskCheck(folder, free, known)}, nil
}

func (s *Store) fileCheck(ctx context.Context) (doctor.Check, error) {
	f := doctor.Check{Name: "store file", Severity: doctor.OK}
	if err := s.gone(); err != nil {
		return doctor.Failure("store file", err, holdfast.Hint{Kind: holdfast.HintReturnDatabase}), nil
	}
	problems, err := list[struct{ Problem string }](ctx, s, "check the database", "quick_check")
	if err != nil {
		return f, err
	}
	f.Detail = "it is sound, " + megabytes(uint64(size(s.path)))
	if len(problems) > 0 && problems[0].Problem != "ok" {
		f.Severity, f.Detail = doctor.Failed, "it is damaged: "+problems[0].Problem
		f.Remedy = holdfast.Hint{Kind: holdfast.HintRestoreDatabase, Arg: s.path}
	}
	return f, nil
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// probe makes a file in the folder and removes it, as SQLite does with those beside the database.
func probe(folder string) error {
	file, err := os.CreateTemp(folder, ".holdfast-probe-")
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}

func folderCheck(folder, network string, writing error) doctor.Check {
	f := doctor.Check{Name: "store folder", Severity: doctor.OK, Detail: folder + ", on a disk of this machine"}
	switch {
	case network != "":
		f.Severity, f.Detail = doctor.Failed, fmt.Sprintf("%s is on a network file system (%s), where locks do not work reliably and tasks can be lost", folder, network)
		f.Remedy = holdfast.Advice("move the file to a disk of this machine, or use PostgreSQL")
	case errors.Is(writing, fs.ErrPermission):
		f.Severity, f.Detail = doctor.Failed, "this user cannot write to "+folder
		f.Remedy = holdfast.Advice("run as the user that owns the folder, or give it a group that both share")
	case writing != nil:
		f.Severity, f.Detail, f.Remedy = doctor.Failed, "nothing can be written: "+writing.Error(), holdfast.Advice("make room, or mount the disk writable")
	}
	return f
}

func diskCheck(folder string, free uint64, known bool) doctor.Check {
	f := doctor.Check{Name: "store disk", Severity: doctor.OK, Detail: megabytes(free) + " free"}
	switch {
	case !known:
		f.Severity, f.Detail, f.Remedy = doctor.Skipped, "this system does not tell how much is free", holdfast.Advice("look yourself: df "+folder)
	case free < little:
		f.Severity, f.Remedy = doctor.Failed, holdfast.Advice("make room on the disk of "+folder)
	case free < scarce:
		f.Severity, f.Remedy = doctor.Warning, holdfast.Advice("make room on the disk of "+folder)
	}
	return f
}

func megabytes(n uint64) string { return fmt.Sprintf("%d MB", n/1_000_000) }

// Janitors implements doctor.StoreChecker.
func (s *Store) Janitors(ctx context.Context, age time.Duration) (doctor.Janitors, error) {
	rows, err := list[struct{ Receipts, Oldest, Turned int64 }](ctx, s, "look for the janitors", "janitors", s.now().UnixMicro(), age.Microseconds())
	if err != nil || len(rows) == 0 {
		return doctor.Janitors{}, err
	}
	return doctor.Janitors{
		OutboxEntries: rows[0].Receipts, Oldest: time.Duration(rows[0].Oldest) * time.Microsecond,
		LastTurn: time.Duration(rows[0].Turned) * time.Microsecond,
	}, nil
}
