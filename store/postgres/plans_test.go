package postgres_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/store/postgres/pgtest"
)

// The server plans a prepared statement once, perhaps when the table is empty. Whenever it does, the plan must look up
// tasks and outbox entries by their ids. In a table that has grown since, any other plan would read the whole table for
// every page.
func TestPreparedLookUpsAreByIDWheneverTheyWerePlanned(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	conn, err := s.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	run := func(text string) {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	run("set plan_cache_mode = force_generic_plan")
	calls := map[string]string{
		"claim_range":          `1, '\x01', 1, '{t}', '{1}', false, 0, '{1}', '{1}', '{0}'`,
		"claim_range_gated":    `1, '\x01', 1, '{t}', '{1}', false, 0, '{1}', '{1}', '{0}'`,
		"complete_range":       `'\x01', 1, 1, '{1}', '{1}', '{0}', 1, 'default', 't', 0`,
		"complete_range_mixed": `'\x01', 1, 1, '{1}', '{1}', '{0}', 1`,
		"committed_outbox":     `'{1}'`,
		"release":              `1`,
		"permits_free":         `1`,
		"candidates":           `'[{"gate_id": 1, "bucket": "", "n": 1}]'`,
	}
	byID, whole := regexp.MustCompile(`Index Cond: \(+id `), regexp.MustCompile(`Seq Scan on (tasks|outbox)`)
	for name := range calls {
		run("prepare " + name + " as " + s.Text(name))
	}
	for _, rows := range []int{-1, 0, 1, 500} { // -1: before the first analyze
		if rows > 0 {
			insert(t, s, rows)
		}
		if rows >= 0 {
			change(t, s, "analyze tasks, outbox") // the server then plans the statements again
		}
		for name, args := range calls {
			lines, err := conn.QueryContext(t.Context(), "explain execute "+name+" ("+args+")")
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var plan strings.Builder
			for lines.Next() {
				var line string
				if err := lines.Scan(&line); err != nil {
					t.Fatal(err)
				}
				plan.WriteString(line + "\n")
			}
			if err := lines.Err(); err != nil {
				t.Fatal(err)
			}
			if !byID.MatchString(plan.String()) || whole.MatchString(plan.String()) {
				t.Errorf("%s, planned with %d rows:\n%s", name, rows, plan.String())
			}
		}
	}
}
