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

// translate turns an error of the driver into an error of the store contract. It adds the name of the operation and a
// hint. Errors of the contract keep their kind.
func (d *database) translate(ctx context.Context, operation string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, holdfast.ErrUnavailable):
		return fmt.Errorf("%s: %w", operation, err)
	}
	code, ofDriver := codeOf(err)
	if ended := ctx.Err(); ended != nil && (code == codes.SQLITE_INTERRUPT || isContextEnd(err)) {
		if errors.Is(ended, context.DeadlineExceeded) {
			return fmt.Errorf("%s: %w: no answer from %s in time: %w", operation, holdfast.ErrUnavailable, d.path, ended)
		}
		return fmt.Errorf("%s: %w", operation, ended)
	}
	if !ofDriver {
		return fmt.Errorf("%s: %w", operation, err)
	}
	if code == codes.SQLITE_ERROR { // an error in SQL, usually because a table or a column is missing
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

// explain returns the meaning of a primary result code and a hint. kind is the error of the contract, or nil if there
// is none.
func (d *database) explain(code int) (why string, hint holdfast.Hint, kind error) {
	switch code {
	case codes.SQLITE_BUSY, codes.SQLITE_LOCKED, codes.SQLITE_PROTOCOL:
		return "another process keeps " + d.path + " locked", hint, holdfast.ErrUnavailable
	case codes.SQLITE_FULL:
		return "the disk that holds " + d.path + " is full", holdfast.Advice("free space; nothing that was accepted is lost"), holdfast.ErrUnavailable
	case codes.SQLITE_IOERR:
		return "the disk that holds " + d.path + " reports an error, or another program has changed the file",
			holdfast.Advice("check whether the disk is full, and read the system log"), holdfast.ErrUnavailable
	case codes.SQLITE_CANTOPEN:
		return d.path + " cannot be opened",
			holdfast.Advice("check that the file and its folder exist, and that this user may write to the folder and to the files beside the database that end in -wal and -shm"), holdfast.ErrUnavailable
	case codes.SQLITE_NOMEM:
		return "there is not enough memory", hint, holdfast.ErrUnavailable
	case codes.SQLITE_READONLY, codes.SQLITE_PERM, codes.SQLITE_AUTH:
		return "this user may not write to " + d.path,
			holdfast.Advice("give this user the right to write to the folder, to the file, and to the files beside it that end in -wal and -shm"), nil
	case codes.SQLITE_NOTADB, codes.SQLITE_CORRUPT, codes.SQLITE_FORMAT:
		return d.path + " is damaged or is not an SQLite database", holdfast.Hint{Kind: holdfast.HintRestoreDatabase, Arg: d.path}, nil
	case codes.SQLITE_TOOBIG, codes.SQLITE_MISMATCH:
		return "the database cannot store such a value", hint, holdfast.ErrInvalid
	}
	return "SQLite reports an error for " + d.path, hint, nil
}

// codeOf returns the primary result code of an error of the driver.
func codeOf(err error) (code int, ok bool) {
	failure, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return 0, false
	}
	return failure.Code() & 0xff, true
}

// isContextEnd reports whether err is a consequence of the end of a context.
func isContextEnd(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// busy reports whether err means that another connection holds a lock. In that case the statement changed nothing.
func busy(err error) bool {
	if errors.Is(err, errPrecedence) {
		return true
	}
	code, _ := codeOf(err)
	return code == codes.SQLITE_BUSY || code == codes.SQLITE_LOCKED
}
