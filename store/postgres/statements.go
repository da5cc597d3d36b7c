package postgres

import (
	"embed"
	"maps"
	"strconv"
	"strings"

	"github.com/lib/pq"

	"github.com/holdfastq/holdfast/store/desk"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/flow"
	"github.com/holdfastq/holdfast/store/internal/roles"
	"github.com/holdfastq/holdfast/store/internal/statement"
)

//go:embed sql/*.sql
var files embed.FS

// The statements of Renew. The second statement does not read the history.
const (
	renew      = "renew"
	plainRenew = "renew_plain"
)

// statements returns the texts of the embedded files and of the shared roles, for one schema. The name of the schema
// replaces {{schema}}, and the "holdfast." before the name of a table.
func statements(schema string) map[string]string {
	quoted := identifier(schema)
	given := map[string]string{"schema": quoted, "block_size": strconv.Itoa(blockSize), "block": strconv.Itoa(column.CountBlock)}
	variants := append(append(roles.Variants(), desk.Variants()...),
		statement.Variant{Name: plainRenew, Of: renew, Part: "history", Is: "no_history"},
		statement.Variant{Name: "insert_one", Of: "insert_uniform", Part: "count_stored", Is: "count_one"},
		tracedVariant("insert_uniform", nil), tracedVariant("insert_one", map[string]string{"count_stored": "count_one"}),
		members("insert_uniform", "plan_of_uniform"), members("insert", "plan_of_insert"), members("insert_unique", "plan_of_unique"),
		statement.Variant{Name: "list_dead", Of: "list", Part: "window", Is: "dead_window"},
		statement.Variant{Name: "list_ids", Of: "list", Part: "window", Is: "listed_tasks"},
		statement.Variant{Name: "count_ids", Of: "count", Part: "window", Is: "listed_tasks"},
		statement.Variant{Name: "list_tag_dead", Of: "list_tag", Part: "tagged", Is: "tagged_dead"},
		statement.Variant{Name: "count_tag_dead", Of: "count_tag", Part: "tagged", Is: "tagged_dead"},
		statement.Variant{Name: "list_unique", Of: "list", Part: "window", Is: "unique_task"},
		statement.Variant{Name: "list_key", Of: "list", Part: "window", Is: "keyed"},
		statement.Variant{Name: "count_key", Of: "count", Part: "window", Is: "keyed"},
		statement.Variant{Name: "count_dead", Of: "count", Part: "window", Is: "dead_window"},
		statement.Variant{Name: "count_unique", Of: "count", Part: "window", Is: "unique_task"},
	)
	texts := statement.Load(statement.PostgreSQL, given, variants, files, roles.Files, flow.Files, desk.Files)
	names := strings.NewReplacer("holdfast.", quoted+".")
	for name, text := range texts {
		texts[name] = names.Replace(text)
	}
	return texts
}

// members returns the variant of an insert for members of a plan. value is the part with the parameter for the plan.
func members(of, value string) statement.Variant {
	return statement.Variant{Name: of + "_members", Of: of, Part: "plan_column", Is: "members", More: map[string]string{"plan_value": value}}
}

// tracedVariant returns the variant of insert_uniform for tasks with traces, with more parts of the variant of.
func tracedVariant(of string, more map[string]string) statement.Variant {
	parts := map[string]string{"plan_column": "trace", "plan_value": "trace"}
	maps.Copy(parts, more)
	return statement.Variant{Name: of + "_traced", Of: "insert_uniform", Part: "uniform_tasks", Is: "traced_tasks", More: parts}
}

// identifier quotes a name for the text of a statement. A statement takes values as parameters, but the name of a
// schema or a role must be in its text. All names that are written into SQL pass through identifier.
func identifier(name string) string { return pq.QuoteIdentifier(name) }

// frequent returns the texts of the statements that are executed for every task, or all the time by an idle janitor.
// Connections prepare them, and the server soon uses one generic plan for each. The plan is good for any statistics:
// the statements look up rows by id or in an index with few rows, and the settings of the connection exclude worse
// plans.
func frequent(texts map[string]string) map[string]bool {
	list := make(map[string]bool)
	for _, name := range []string{"insert", "insert_uniform", "insert_one", "insert_uniform_traced", "insert_one_traced", "claim_range", "claim_range_gated", "complete_range", "complete_range_mixed", "committed_outbox", "delete_outbox", "dispatch_due_next",
		"order_skip_lock", "order_judge", "order_start", "order_started", "claim", "claim_refused", "block", "insert_unique", "insert_uniform_members", "dispatch_due", "dispatch_due_mark",
		"gates_open", "limits_lock", "buckets_arrived", "permits_free", "permits_next", "buckets_due", "reserving", "candidates", "buckets_named", "blocked_move", "buckets_decided", "buckets_touched", "buckets_delete", "admit", "buckets_next"} {
		list[texts[name]] = true
	}
	return list
}
