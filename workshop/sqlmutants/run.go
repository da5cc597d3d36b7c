package sqlmutants

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/holdfastq/holdfast/workshop/sim/patch"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// outcome is what the tests of a role say about a mutant.
type outcome string

const (
	killed   outcome = "killed"   // a test fails
	survived outcome = "survived" // all tests pass
	late     outcome = "late"     // the tests do not end in time
	broken   outcome = "broken"   // SQLite refuses the statement, so the mutant says nothing
	unused   outcome = "unused"   // the tests do not read the file with the statement
)

const (
	// pkg is the package whose tests run.
	pkg = "store/sqlite"
	// variable is the environment variable that selects the mutant. Its value is the name of an embedded file, the length
	// of the file, a range in it, and the text that replaces the range.
	variable = "HOLDFAST_SQL_MUTANT"
	// applied is what the tests write when they read the mutant.
	applied = "sql mutant applied"
	// patience is slow.Patience in the tests.
	patience = 10 * time.Second
	// chance has the tests that need long and find a mutant only by chance, because they compare random or concurrent calls,
	// or many values. They do not run.
	chance = "^TestStore$/^(Gates|Limits|Order|Topics)$/^(claims_nothing_after_the_call_that_pauses|never_exceeds_a_concurrency|" +
		"a_worker_that_registers_meanwhile_knows_the_pause|targets_agree_with_the_handler_of_deliveries|" +
		"keeps_the_order_(under_random_changes|with_concurrent_callers)|every_task_ends_under_random_changes)$"
)

// edits let one binary run the tests with any mutant, because a build for each mutant would take most of the time: the
// package embed changes the text of a file that it returns. They also shorten the time for which a test waits for an
// event that never happens.
var edits = []patch.Edit{
	{File: "GOROOT/embed/embed.go", Old: "\t\"time\"\n)\n", New: `	"strconv"
	"strings"
	"syscall"
	"time"
)

func mutated(name, data string) string {
	value, _ := syscall.Getenv("` + variable + `")
	field := strings.SplitN(value, "|", 5)
	if len(field) < 5 || !strings.HasSuffix("/"+field[0], "/"+name) || field[1] != strconv.Itoa(len(data)) {
		return data
	}
	from, _ := strconv.Atoi(field[2])
	to, _ := strconv.Atoi(field[3])
	println("` + applied + `")
	return data[:from] + field[4] + data[to:]
}
`},
	{File: "GOROOT/embed/embed.go", Old: "\treturn []byte(ofile.f.data), nil\n", New: "\treturn []byte(mutated(name, ofile.f.data)), nil\n"},
	{File: "workshop/slow/factor.go", Old: "return Times(3 * time.Minute)", New: fmt.Sprintf("return Times(%d)", patience)},
}

var (
	failure = regexp.MustCompile(`^\s*--- FAIL: (\S+)`)
	refused = regexp.MustCompile(`SQL logic error|syntax error|no such column|misuse of aggregate`)
)

// verdict is the outcome of the tests with one mutant, or without one.
type verdict struct {
	outcome outcome
	detail  string // the first failed test, or the error
	ran     int    // the number of tests that began
	took    time.Duration
}

// runner runs the tests of package store/sqlite.
type runner struct{ root, binary string }

// build compiles the tests.
func build(root, work string) (runner, error) {
	r := runner{root, filepath.Join(work, "sqlite.test.exe")}
	return r, patch.Build(root, work, "./"+pkg, r.binary, edits)
}

// run runs the tests of a role with the mutant, or without one if m is nil, until the first failure. It sets
// slow.Variable, so that only quick tests run.
func (r runner) run(ctx context.Context, tests string, m *located, limit time.Duration) (v verdict, err error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.binary, "-test.run", tests, "-test.skip", chance, "-test.v", "-test.failfast")
	cmd.Dir = filepath.Join(r.root, filepath.FromSlash(pkg))
	cmd.Env = append(os.Environ(), slow.Variable+"=")
	v.outcome = survived
	if m != nil {
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%s|%d|%d|%d|%s", variable, m.file, m.size, m.from, m.to, m.text))
		v.outcome = unused
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return v, err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return v, err
	}
	v.read(bufio.NewScanner(out))
	timeout := ctx.Err()
	if v.outcome != survived {
		cancel() // the rest of the tests does not matter
	}
	err = cmd.Wait()
	v.took = time.Since(began)
	switch {
	case errors.Is(timeout, context.DeadlineExceeded) && v.outcome == survived:
		v.outcome, v.detail = late, fmt.Sprintf("no failure within %s", limit)
	case err != nil && v.outcome == survived:
		v.outcome, v.detail = killed, err.Error()
	}
	return v, nil
}

// read reads the output of tests up to the end of the first failure.
func (v *verdict) read(lines *bufio.Scanner) {
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		match := failure.FindStringSubmatch(line)
		switch {
		case refused.MatchString(line):
			v.outcome, v.detail = broken, strings.TrimSpace(line)
			return
		case match != nil && (v.outcome != killed || strings.HasPrefix(match[1], v.detail+"/")): // a failed test, or the failed test in it
			v.outcome, v.detail = killed, match[1]
		case v.outcome == killed && !strings.HasPrefix(line, " "):
			return
		case strings.HasPrefix(line, "=== RUN"):
			v.ran++
		case line == applied:
			v.outcome = survived
		}
	}
}
