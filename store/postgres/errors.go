package postgres

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

// translate turns an error of the driver into one of the contract, with the name of
// the operation. Errors that already belong to the contract pass.
func translate(ctx context.Context, operation string, err error) error {
	if err == nil {
		return nil
	}
	kind := kindOf(err)
	if kind == holdfast.ErrUnavailable || isEnd(err) {
		// A server that was asked to cancel answers with an error of its own, and what a network says
		// after it was cut means nothing.
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

// isEnd reports whether err is what the end of a context leads to.
func isEnd(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sql.ErrTxDone)
}

// kindOf says which error of the contract stands for a driver's; nil means none.
func kindOf(err error) error {
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
	case pqerror.StatementTooComplex: // such as JSON that is nested too deep
		return holdfast.ErrInvalid
	case pqerror.QueryCanceled, // by statement_timeout, or by an administrator
		pqerror.TRDeadlockDetected, pqerror.TRSerializationFailure, // again and again, or in a caller's transaction
		pqerror.LockNotAvailable,
		pqerror.ReadOnlySQLTransaction, // a standby, for now
		pqerror.IdleInTransactionSessionTimeout:
		return holdfast.ErrUnavailable
	}
	switch code.Class() {
	case "08", "53", "57", "58": // connections, resources, operator, system
		return holdfast.ErrUnavailable
	case "22": // data that the column cannot hold
		return holdfast.ErrInvalid
	}
	return nil
}

// passing reports whether the server has undone the statement for a reason that is
// gone when it is sent again.
func passing(err error) bool {
	return pq.As(err, pqerror.TRDeadlockDetected, pqerror.TRSerializationFailure) != nil || isOutdated(err)
}

// isOutdated says that a prepared statement is gone, or that its tables are not what they were.
func isOutdated(err error) bool {
	return pq.As(err, pqerror.InvalidSQLStatementName, pqerror.FeatureNotSupported) != nil
}

// missing reports whether err says that the schema, or a table of it, does not exist.
func missing(err error) bool {
	return pq.As(err, pqerror.UndefinedTable, pqerror.InvalidSchemaName) != nil
}
