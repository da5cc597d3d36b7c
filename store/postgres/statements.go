package postgres

import (
	"embed"
	"strings"

	"github.com/lib/pq"

	"github.com/holdfastq/holdfast/store/internal/statement"
)

//go:embed sql/*.sql
var files embed.FS

// The statements of Renew: the second one does not ask for the history.
const (
	renew      = "renew"
	plainRenew = "renew_plain"
)

// statements reads the embedded files for one schema. {{schema}} stands for its name, and so does "holdfast." before the
// name of a table.
func statements(schema string) map[string]string {
	quoted := identifier(schema)
	texts := statement.Load(files, map[string]string{"schema": quoted},
		statement.Variant{Name: plainRenew, Of: renew, Part: "history", Is: "no_history"})
	names := strings.NewReplacer("holdfast.", quoted+".")
	for name, text := range texts {
		texts[name] = names.Replace(text)
	}
	return texts
}

// identifier quotes a name for the text of a statement. A statement takes values as parameters, but no names: those of a
// schema or a role must be in its text. Nothing else writes a name into SQL.
func identifier(name string) string { return pq.QuoteIdentifier(name) }

// frequent are the texts of the statements that every task goes through, or that an idle janitor asks all the time. Connections
// prepare them, and the server soon plans them once for all: they look up rows by id or an index of few rows, and the settings of
// the connection leave it no worse way, whatever the statistics say.
func frequent(texts map[string]string) map[string]bool {
	list := make(map[string]bool)
	for _, name := range []string{"insert", "insert_alike", "claim_near", "complete_near", "discharge", "dispatch_due_next"} {
		list[texts[name]] = true
	}
	return list
}
