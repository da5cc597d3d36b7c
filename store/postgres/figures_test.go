package postgres_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/workshop/pgtest"
)

// A chart, and the deletion of figures, read ranges of the primary key, in a store with many queues. That is true for a plan
// from any time.
func TestFiguresAreReadByKey(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	conn, err := s.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	run := runOn(t, conn)
	run("set plan_cache_mode = force_generic_plan")
	calls := map[string]string{
		"figures":       `'q1', 3600000000, 60000000, '{succeeded,ready}'`,
		"figures_prune": `1000, 90000000000, '{succeeded,ready}'`,
	}
	for name := range calls {
		run("prepare " + name + " as " + s.Text(name))
	}
	byKey := regexp.MustCompile(`Index Cond: \(\(?\(?(f\.)?queue = .*minute`)
	for _, when := range []string{"with an empty table", "never analyzed", "analyzed"} {
		if when == "never analyzed" {
			change(t, s, `insert into figures (queue, figure, minute, n)
				select 'q' || q, k, now() - m * interval '1 minute', m from generate_series(1, 50) q, unnest(array['succeeded', 'ready']) k, generate_series(1, 300) m`)
		} else if when == "analyzed" {
			change(t, s, "analyze figures")
		}
		for name, args := range calls {
			lines, err := conn.QueryContext(t.Context(), "explain (analyze, costs off, timing off, summary off, buffers off) execute "+name+" ("+args+")")
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
			if text := plan.String(); !byKey.MatchString(text) || strings.Contains(text, "Seq Scan on figures") || strings.Contains(text, "tasks") {
				t.Errorf("%s, %s:\n%s", name, when, text)
			} else if testing.Verbose() {
				t.Logf("%s, %s:\n%s", name, when, text)
			}
		}
	}
}
