package roles

import (
	"context"
	"embed"

	"github.com/holdfastq/holdfast/store/internal/scan"
	"github.com/holdfastq/holdfast/store/internal/statement"
)

// Files has the statements of the roles that have the same text for all adapters. Each role has a file with its name.
//
//go:embed *.sql
var Files embed.FS

// Variants returns the variants of the statements in Files.
func Variants() []statement.Variant {
	return []statement.Variant{
		{Name: "audit_log_task", Of: "audit_log", Part: "audit_entries", Is: "audit_entries_of_task"},
		{Name: "audit_log_operation", Of: "audit_log", Part: "audit_entries", Is: "audit_entries_of_operation"},
		{Name: "audit_log_subject", Of: "audit_log", Part: "audit_entries", Is: "audit_entries_of_subject"},
		{Name: "operation", Of: "operations", Part: "operations_wanted", Is: "operations_by_id"},
		{Name: "operations_running", Of: "operations", Part: "operations_wanted", Is: "operations_active"},
		{Name: "plans_by_id", Of: "plans_all", Part: "plans_with_ids", Is: "plans_by_id"},
		{Name: "death_group", Of: "death_groups", Part: "groups", Is: "one_group"},
	}
}

// reading is a Reader without a transaction.
type reading struct {
	statements Statements
	operation  string
}

// Read implements Reader.
func (r reading) Read(ctx context.Context, name string, rows any, args ...any) error {
	return r.statements.Read(ctx, r.operation, name, rows, args...)
}

// listOf returns a value for each row of a query.
func listOf[Row, V any](ctx context.Context, r Reader, name string, value func(Row) V, args ...any) ([]V, error) {
	var rows []Row
	if err := r.Read(ctx, name, &rows, args...); err != nil {
		return nil, err
	}
	return scan.Map(rows, value), nil
}

// firstOf returns the first row of a query, or the error missing if there is none.
func firstOf[Row any](ctx context.Context, r Reader, missing error, name string, args ...any) (first Row, err error) {
	var rows []Row
	if err := r.Read(ctx, name, &rows, args...); err != nil {
		return first, err
	}
	if len(rows) == 0 {
		return first, missing
	}
	return rows[0], nil
}

// changeRows executes a statement that reads rows as a JSON array, unless there are none.
func changeRows[Row any](ctx context.Context, tx Changer, name string, rows []Row) error {
	if len(rows) == 0 {
		return nil
	}
	_, err := tx.Change(ctx, name, encode(rows))
	return err
}
