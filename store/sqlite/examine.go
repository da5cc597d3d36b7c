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
	"github.com/holdfastq/holdfast/store"
)

var _ store.Examiner = (*Store)(nil)

const (
	scarce = 1 << 30  // bytes: time to make room
	little = 64 << 20 // bytes: what the file of changes alone may grow to in a burst
)

// Settings implements store.Examiner. It reads the whole file.
func (s *Store) Settings(ctx context.Context) ([]holdfast.Finding, error) {
	file, err := s.fileFinding(ctx)
	if err != nil {
		return nil, err
	}
	folder := filepath.Dir(s.path)
	free, known := freeBytes(folder)
	return []holdfast.Finding{file, folderFinding(folder, networkFileSystem(folder), probe(folder)), diskFinding(folder, free, known)}, nil
}

func (s *Store) fileFinding(ctx context.Context) (holdfast.Finding, error) {
	f := holdfast.Finding{Check: "store file", Grade: holdfast.GradeOK}
	if err := s.gone(); err != nil {
		f.Grade, f.Detail, f.Remedy = holdfast.GradeFailed, err.Error(), "put the file back, or restore a backup"
		return f, nil
	}
	problems, err := list[struct{ Problem string }](ctx, s, "check the database", "quick_check")
	if err != nil {
		return f, err
	}
	f.Detail = "it is sound, " + megabytes(uint64(size(s.path)))
	if len(problems) > 0 && problems[0].Problem != "ok" {
		f.Grade, f.Detail = holdfast.GradeFailed, "it is damaged: "+problems[0].Problem
		f.Remedy = "stop the server and restore a backup; without one, save what can be read with: sqlite3 holdfast.db .recover"
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

func folderFinding(folder, network string, writing error) holdfast.Finding {
	f := holdfast.Finding{Check: "store folder", Grade: holdfast.GradeOK, Detail: folder + ", on a disk of this machine"}
	switch {
	case network != "":
		f.Grade, f.Detail = holdfast.GradeFailed, fmt.Sprintf("%s is on a network file system (%s), where locks do not work reliably and tasks can be lost", folder, network)
		f.Remedy = "move the file to a disk of this machine, or use PostgreSQL"
	case errors.Is(writing, fs.ErrPermission):
		f.Grade, f.Detail = holdfast.GradeFailed, "this user cannot write to "+folder
		f.Remedy = "run as the user that owns the folder, or give it a group that both share"
	case writing != nil:
		f.Grade, f.Detail, f.Remedy = holdfast.GradeFailed, "nothing can be written: "+writing.Error(), "make room, or mount the disk writable"
	}
	return f
}

func diskFinding(folder string, free uint64, known bool) holdfast.Finding {
	f := holdfast.Finding{Check: "store disk", Grade: holdfast.GradeOK, Detail: megabytes(free) + " free"}
	switch {
	case !known:
		f.Grade, f.Detail, f.Remedy = holdfast.GradeSkipped, "this system does not tell how much is free", "look yourself: df "+folder
	case free < little:
		f.Grade, f.Remedy = holdfast.GradeFailed, "make room on the disk of "+folder
	case free < scarce:
		f.Grade, f.Remedy = holdfast.GradeWarning, "make room on the disk of "+folder
	}
	return f
}

func megabytes(n uint64) string { return fmt.Sprintf("%d MB", n/1_000_000) }

// Signs implements store.Examiner.
func (s *Store) Signs(ctx context.Context, old time.Duration) (store.Signs, error) {
	rows, err := list[struct{ Receipts, Oldest, Turned int64 }](ctx, s, "look for the janitors", "signs", s.now().UnixMicro(), old.Microseconds())
	if err != nil || len(rows) == 0 {
		return store.Signs{}, err
	}
	return store.Signs{
		Receipts: rows[0].Receipts, Oldest: time.Duration(rows[0].Oldest) * time.Microsecond,
		Turned: time.Duration(rows[0].Turned) * time.Microsecond,
	}, nil
}
