package pgclient

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/schema"
	"github.com/holdfastq/holdfast/store"
)

// Translate turns an error of lib/pq or of the network into an error of the store contract, and adds the name of the
// operation. Errors of the contract keep their kind. If ctx has ended, the end of ctx is the cause that it reports.
// Returns nil if err is nil.
func Translate(ctx context.Context, operation string, err error) error {
	if err == nil {
		return nil
	}
	kind := Kind(err)
	if kind == holdfast.ErrUnavailable || isContextEnd(err) {
		// After the context has ended, err is only a consequence: the server reports the cancellation, and the network
		// connection was cut.
		switch ended := ctx.Err(); {
		case errors.Is(ended, context.DeadlineExceeded):
			return fmt.Errorf("%s: %w: no answer from PostgreSQL: %w", operation, holdfast.ErrUnavailable, ended)
		case ended != nil:
			return fmt.Errorf("%s: %w", operation, ended)
		}
	}
	if holdfast.HintOf(err) == (holdfast.Hint{}) && pq.As(err, pqerror.InsufficientPrivilege) != nil {
		err = holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintFindGrant})
	}
	if kind == nil || errors.Is(err, kind) {
		return fmt.Errorf("%s: %w", operation, err)
	}
	if kind == store.ErrSchema {
		return fmt.Errorf("%s: %w", operation, schema.Outdated("%w", err))
	}
	return fmt.Errorf("%s: %w: %w", operation, kind, err)
}

// isContextEnd reports whether err is a consequence of the end of a context.
func isContextEnd(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sql.ErrTxDone)
}

// Kind returns the error of the contract for an error of lib/pq or of the network: holdfast.ErrUnavailable,
// holdfast.ErrInvalid or store.ErrSchema. Returns nil if there is none.
func Kind(err error) error {
	if failure := pq.As(err); failure != nil {
		return kindOfCode(failure.Code)
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return holdfast.ErrUnavailable
	}
	for _, gone := range []error{errLost, driver.ErrBadConn, sql.ErrConnDone, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed} {
		if errors.Is(err, gone) {
			return holdfast.ErrUnavailable
		}
	}
	return nil
}

func kindOfCode(code pqerror.Code) error {
	switch code {
	case pqerror.UndefinedTable, pqerror.UndefinedColumn, pqerror.InvalidSchemaName:
		return store.ErrSchema
	case pqerror.QueryCanceled, // statement_timeout or an administrator has cancelled the statement
		pqerror.TRDeadlockDetected, pqerror.TRSerializationFailure, // conflict at every try, or in a caller's transaction
		pqerror.LockNotAvailable,
		pqerror.ReadOnlySQLTransaction, // the server is a standby, which may become the primary
		pqerror.IdleInTransactionSessionTimeout:
		return holdfast.ErrUnavailable
	}
	switch code.Class() {
	case "08", "53", "57", "58": // connections, resources, operator, system
		return holdfast.ErrUnavailable
	case "22", "54": // data that the column or its index cannot hold, and limits of the server such as the depth of JSON
		return holdfast.ErrInvalid
	}
	return nil
}

// Transient reports whether the server has rolled the statement back for a transient reason, such as a deadlock, so
// that a second try may succeed.
func Transient(err error) bool {
	return pq.As(err, pqerror.TRDeadlockDetected, pqerror.TRSerializationFailure) != nil || isOutdated(err)
}

// isOutdated reports whether err means that a prepared statement no longer exists, or that its tables have changed.
func isOutdated(err error) bool {
	return pq.As(err, pqerror.InvalidSQLStatementName, pqerror.FeatureNotSupported) != nil
}

// missing reports whether err means that the schema, or a table of the schema, does not exist.
func missing(err error) bool {
	return pq.As(err, pqerror.UndefinedTable, pqerror.InvalidSchemaName) != nil
}
