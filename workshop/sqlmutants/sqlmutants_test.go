package sqlmutants

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfastq/holdfast/workshop/slow"
)

// onlyRole is the environment variable with the name of one role. It also enables the test.
const onlyRole = "SQLMUTANTS"

// atOnce is how many mutants run at once.
const atOnce = 2

// TestMutants drops each condition of the roles, one after the other. A test must fail for each, except for the
// equivalent ones.
func TestMutants(t *testing.T) {
	only := os.Getenv(onlyRole)
	if only == "" {
		slow.Skip(t)
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	tests, err := build(root, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ran := false
	for _, r := range roles {
		if only != r.name && (only != "" || r.unfinished) {
			continue
		}
		ran = true
		t.Run(r.name, func(t *testing.T) { testRole(t, tests, r) })
	}
	if !ran {
		t.Errorf("there is no role %s", only)
	}
}

func testRole(t *testing.T, tests runner, r role) {
	list, err := mutantsOf(tests.root, r)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	plain, err := tests.run(t.Context(), r.tests, nil, slow.Patience())
	if err != nil || plain.outcome != survived || plain.ran < 2 {
		t.Fatalf("the tests %s without a mutant: %+v, %v", r.tests, plain, err)
	}
	limit := slow.Times(3*patience) + 3*plain.took
	var mu sync.Mutex
	counts := make(map[outcome]int)
	unfound := 0
	var mutants errgroup.Group
	mutants.SetLimit(atOnce)
	for _, m := range list {
		mutants.Go(func() error {
			v, err := tests.run(t.Context(), r.tests, &m, limit)
			if err != nil {
				return err
			}
			known, equivalent := lookup(m.Mutant)
			mu.Lock()
			defer mu.Unlock()
			counts[v.outcome]++
			switch {
			case (v.outcome == survived || v.outcome == broken) && equivalent:
				unfound++
				t.Logf("equivalent: %s: %s", m, known.why)
			case v.outcome == broken, v.outcome == unused:
				t.Errorf("%s: %s: %s", v.outcome, m, v.detail)
			case v.outcome == survived:
				t.Errorf("survived: %s", m)
			case equivalent && !known.race:
				t.Errorf("not equivalent, since %s fails: %s", v.detail, m)
			case v.outcome == late:
				t.Logf("killed by the time limit of %s: %s", limit, m)
			default:
				t.Logf("killed by %s after %s: %s", v.detail, v.took.Round(100*time.Millisecond), m)
			}
			return nil
		})
	}
	if err := mutants.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d mutants, %d killed, %d of them by the time limit, %d equivalent, %.0f seconds",
		r.name, len(list), counts[killed]+counts[late], counts[late], unfound, time.Since(began).Seconds())
}

// lookup returns the entry of a mutant in the table of equivalents.
func lookup(m Mutant) (equivalent, bool) {
	for _, e := range equivalents {
		if e.statement == m.Statement && fold(e.mutant) == m.Operand+" -> "+m.With {
			return e, true
		}
	}
	return equivalent{}, false
}

// TestEquivalentsFitTheStatements finds entries of mutants that do not exist any more.
func TestEquivalentsFitTheStatements(t *testing.T) {
	t.Parallel()
	exist := make(map[string]bool)
	for _, r := range roles {
		list, err := mutantsOf(filepath.Join("..", ".."), r)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			t.Errorf("role %s has no conditions", r.name)
		}
		for _, m := range list {
			exist[m.String()] = true
		}
	}
	for _, e := range equivalents {
		if name := e.statement + ": " + fold(e.mutant); !exist[name] || e.why == "" {
			t.Errorf("no such mutant, or no reason for it: %s", name)
		}
	}
}
