package postgres

import (
	"embed"
	"path"
	"strings"

	"github.com/lib/pq"
)

//go:embed sql/*.sql
var files embed.FS

// The names of files that are parts of others. {{columns}} stands for a task's columns, {{claimable}} for the rule for
// the tasks that a claim takes, {{claimed}} for the columns that it returns, {{history}} for the name of the store's
// history, {{signs_held}} for the signs of presence that are held.
const (
	columns   = "columns"
	claimable = "claimable"
	claimed   = "claimed"
	history   = "history"
	signsHeld = "signs_held"
)

// statements reads the embedded files for one schema. A file that cannot be used
// is a mistake of the build.
func statements(schema string) map[string]string {
	entries, err := files.ReadDir("sql")
	if err != nil {
		panic(err)
	}
	texts := make(map[string]string, len(entries))
	for _, entry := range entries {
		text, err := files.ReadFile(path.Join("sql", entry.Name()))
		if err != nil {
			panic(err)
		}
		texts[strings.TrimSuffix(entry.Name(), ".sql")] = compact(string(text))
	}
	texts[plainRenew] = strings.ReplaceAll(texts[renew], "{{"+history+"}}", "''")
	var parts []string
	for _, name := range []string{columns, claimable, claimed, history, signsHeld} {
		parts = append(parts, "{{"+name+"}}", texts[name])
	}
	whole, names := strings.NewReplacer(parts...), strings.NewReplacer("holdfast.", pq.QuoteIdentifier(schema)+".")
	for name, text := range texts {
		texts[name] = names.Replace(whole.Replace(text))
	}
	return texts
}

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

// compact drops comments and indentation: the text travels with every call.
func compact(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "--")
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}
