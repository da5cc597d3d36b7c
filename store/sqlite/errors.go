package sqlite

import (
	"context"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/schema"
)

// translate turns an error of the driver into one of the contract, with the name of the operation and a
// hint what to do. Errors that already belong to the contract pass.
func (d *database) translate(ctx context.Context, operation string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, holdfast.ErrUnavailable):
		return fmt.Errorf("%s: %w", operation, err)
	}
	code, ofDriver := codeOf(err)
	if ended := ctx.Err(); ended != nil && (code == codes.SQLITE_INTERRUPT || isEnd(err)) {
		if errors.Is(ended, context.DeadlineExceeded) {
			return fmt.Errorf("%s: %w: no answer from %s in time: %w", operation, holdfast.ErrUnavailable, d.path, ended)
		}
		return fmt.Errorf("%s: %w", operation, ended)
	}
	if !ofDriver {
		return fmt.Errorf("%s: %w", operation, err)
	}
	if code == codes.SQLITE_ERROR { // of SQL, most of all because a table or a column is missing
		if applied, readErr := d.versions(context.WithoutCancel(ctx)); readErr == nil {
			if mismatch := schema.SQLite.Compare(d.path, schema.Newest(applied)); mismatch != nil {
				return fmt.Errorf("%s: %w: %w", operation, mismatch, err)
			}
		}
		return fmt.Errorf("%s: %w", operation, err)
	}
	why, hint, kind := d.explain(code)
	if kind == nil {
		err = fmt.Errorf("%s: %s: %w", operation, why, err)
	} else {
		err = fmt.Errorf("%s: %w: %s: %w", operation, kind, why, err)
	}
	if hint != (holdfast.Hint{}) {
		err = holdfast.WithHint(err, hint)
	}
	return err
}

// explain says what a primary result code means, what to do, and which error of the contract stands for it, nil if none.
func (d *database) explain(code int) (why string, hint holdfast.Hint, kind error) {
	switch code {
	case codes.SQLITE_BUSY, codes.SQLITE_LOCKED, codes.SQLITE_PROTOCOL:
		return "another process keeps " + d.path + " locked", hint, holdfast.ErrUnavailable
	case codes.SQLITE_FULL:
		return "the disk that holds " + d.path + " is full", holdfast.Advice("free space; nothing that was accepted is lost"), holdfast.ErrUnavailable
	case codes.SQLITE_IOERR:
		return "the disk that holds " + d.path + " does not answer as it should, or the file was changed by other means",
			holdfast.Advice("look whether the disk is full, and into the system's log"), holdfast.ErrUnavailable
	case codes.SQLITE_CANTOPEN:
		return d.path + " cannot be opened",
			holdfast.Advice("look whether the file and its folder exist, and whether this user may write in the folder and to the files beside it that end in -wal and -shm"), holdfast.ErrUnavailable
	case codes.SQLITE_NOMEM:
		return "there is no memory left", hint, holdfast.ErrUnavailable
	case codes.SQLITE_READONLY, codes.SQLITE_PERM, codes.SQLITE_AUTH:
		return "this user may not write to " + d.path,
			holdfast.Advice("give this user the right to write to the file, to those beside it that end in -wal and -shm, and to the folder"), nil
	case codes.SQLITE_NOTADB, codes.SQLITE_CORRUPT, codes.SQLITE_FORMAT:
		return d.path + " is damaged or is not an SQLite database", holdfast.Hint{Kind: holdfast.HintRestoreDatabase, Arg: d.path}, nil
	case codes.SQLITE_TOOBIG, codes.SQLITE_MISMATCH:
		return "the database cannot hold such a value", hint, holdfast.ErrInvalid
	}
	return d.path + " answers with an error", hint, nil
}

// codeOf returns the primary result code of an error of the driver.
func codeOf(err error) (code int, ok bool) {
	failure, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return 0, false
	}
	return failure.Code() & 0xff, true
}

// isEnd reports whether err is what the end of a context leads to.
func isEnd(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// busy reports whether another process was in the way, and nothing was done.
func busy(err error) bool {
	code, _ := codeOf(err)
	return code == codes.SQLITE_BUSY || code == codes.SQLITE_LOCKED
}
