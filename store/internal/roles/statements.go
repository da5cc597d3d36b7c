package roles

import (
	"embed"

	"github.com/holdfastq/holdfast/store/internal/statement"
)

// Files has the statements of the roles that have the same text for all adapters. Each role has a file with its name.
//
//go:embed *.sql
var Files embed.FS

// Variants returns the variants of the statements in Files.
func Variants() []statement.Variant {
	return []statement.Variant{
		{Name: "audit_log_single", Of: "audit_log", Part: "audit_entries", Is: "audit_entries_single"},
		{Name: "audit_log_task", Of: "audit_log", Part: "audit_entries", Is: "audit_entries_of_task"},
		{Name: "audit_log_operation", Of: "audit_log", Part: "audit_entries", Is: "audit_entries_of_operation"},
		{Name: "audit_log_subject", Of: "audit_log", Part: "audit_entries", Is: "audit_entries_of_subject"},
		{Name: "operation", Of: "operations", Part: "operations_wanted", Is: "operations_by_id"},
		{Name: "operations_running", Of: "operations", Part: "operations_wanted", Is: "operations_active"},
		{Name: "plans_by_id", Of: "plans_all", Part: "plans_with_ids", Is: "plans_by_id"},
	}
}
