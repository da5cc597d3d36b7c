package sqlite

import (
	"embed"
	"strconv"

	"github.com/holdfastq/holdfast/store/desk"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/flow"
	"github.com/holdfastq/holdfast/store/internal/roles"
	"github.com/holdfastq/holdfast/store/internal/statement"
)

//go:embed sql/*.sql
var files embed.FS

// statements returns the embedded statements and those of the shared roles, by name.
func statements() map[string]string {
	variants := append(append(roles.Variants(), desk.Variants()...),
		statement.Variant{Name: "list_dead", Of: "list", Part: "window", Is: "dead_window"},
		statement.Variant{Name: "list_ids", Of: "list", Part: "window", Is: "listed_tasks"},
		statement.Variant{Name: "count_ids", Of: "count", Part: "window", Is: "listed_tasks"},
		statement.Variant{Name: "list_tag_dead", Of: "list_tag", Part: "tagged", Is: "tagged_dead"},
		statement.Variant{Name: "count_tag_dead", Of: "count_tag", Part: "tagged", Is: "tagged_dead"},
		statement.Variant{Name: "list_unique", Of: "list", Part: "window", Is: "unique_task"},
		statement.Variant{Name: "list_key", Of: "list", Part: "window", Is: "keyed"},
		statement.Variant{Name: "count_key", Of: "count", Part: "window", Is: "keyed"},
		statement.Variant{Name: "count_unique", Of: "count", Part: "window", Is: "unique_task"},
		statement.Variant{Name: "list_running", Of: "list", Part: "window", Is: "running_tasks"},
		statement.Variant{Name: "count_dead", Of: "count", Part: "window", Is: "dead_window"},
		statement.Variant{Name: "count_running", Of: "count", Part: "window", Is: "running_tasks"},
	)
	texts := statement.Load(statement.SQLite, map[string]string{"block": strconv.Itoa(column.CountBlock)}, variants, files, roles.Files, flow.Files, desk.Files)
	for _, name := range []string{begin, commit, rollback} {
		texts[name] = name
	}
	return texts
}

// The statements that begin and end a transaction.
const (
	begin    = "begin immediate"
	commit   = "commit"
	rollback = "rollback"
)
