package sqlite_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast/internal/slow"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
)

// Tests with several processes start this test's own binary again, with the name of a role and the
// path of the file in the environment. What the process has to say it writes as lines.
const (
	roleVariable = "HOLDFAST_TEST_ROLE"
	pathVariable = "HOLDFAST_TEST_PATH"
)

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		slow.Checks(30, 100)
		os.Exit(m.Run())
	}
	if err := play(context.Background(), role, os.Getenv(pathVariable)); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

// busyLimit is how long a call of these tests waits for the lock of the file: a machine that does other work as well must not
// end it.
const busyLimit = 2 * time.Minute

// play is the life of another process.
func play(ctx context.Context, role, path string) error {
	s, err := sqlite.Open(ctx, sqlite.Options{Path: path, Create: true})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	s.SetBusyLimit(busyLimit)
	switch role {
	case "own":
		release, err := s.Own()
		if err != nil {
			return err
		}
		run, err := s.OpenRun(ctx, store.RunInfo{Name: "worker"}, time.Hour)
		if err != nil {
			return err
		}
		fmt.Println("owned", run)
		awaitEnd()
		return release()
	case "migrate":
		applied, err := s.MigrateUp(ctx)
		fmt.Println("applied", len(applied))
		return err
	case "insert":
		return insertForEver(ctx, s)
	case "claim":
		return claimAll(ctx, s)
	case "unique":
		return insertKeys(ctx, s)
	}
	return fmt.Errorf("no such role: %s", role)
}

// awaitEnd returns when the parent closes the pipe, or is gone.
func awaitEnd() { _, _ = io.Copy(io.Discard, os.Stdin) }

// insertForEver stores batches without a pause and says the last id of each one that was accepted.
func insertForEver(ctx context.Context, s *sqlite.Store) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		awaitEnd()
		cancel()
	}()
	tasks := newTasks(large)
	for ctx.Err() == nil {
		inserted, err := s.Insert(ctx, tasks, time.Hour)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Println("stored", inserted.Tasks[len(tasks)-1].ID)
	}
	return nil
}

// claimAll tries to claim every task, in an order of its own, and says which it got.
func claimAll(ctx context.Context, s *sqlite.Store) error {
	tasks, err := s.List(ctx, store.Filter{Limit: 1 << 20})
	if err != nil {
		return err
	}
	run, err := s.OpenRun(ctx, store.RunInfo{Name: "worker"}, time.Hour)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // all begin at once
	order := rand.Perm(len(tasks))
	for len(order) > 0 {
		page := make([]message.Ticket, min(7, len(order)))
		for i := range page {
			page[i] = message.Ticket{Task: tasks[order[i]].ID, Attempt: 1}
		}
		order = order[len(page):]
		claims, err := s.Claim(ctx, run, store.AnyOf("t"), page, store.IntoExecutors)
		if err != nil {
			return err
		}
		for _, claim := range claims {
			if claim.Verdict == store.Claimed {
				fmt.Println("claimed", claim.Task.ID)
			}
		}
	}
	return nil
}

// insertKeys stores tasks with the keys that all such processes want, and says what became of each.
func insertKeys(ctx context.Context, s *sqlite.Store) error {
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	for _, k := range rand.Perm(200) {
		task := newTasks(1)
		task[0].Unique = fmt.Sprint("key-", k)
		inserted, err := s.Insert(ctx, task, time.Hour)
		if err != nil {
			return err
		}
		answer, _ := json.Marshal(inserted.Tasks[0])
		fmt.Println("key", k, string(answer))
	}
	return nil
}

// process is one that was started by a test.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
}

// start starts a process in a role. It is killed when the test ends.
func start(t *testing.T, role, path string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role, pathVariable+"="+path)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &process{t, cmd, stdin, bufio.NewScanner(stdout)}
}

// line returns the next line, false at the end.
func (p *process) line() (string, bool) {
	more := p.lines.Scan()
	return p.lines.Text(), more
}

// said returns the words behind the one that the next line must begin with.
func (p *process) said(word string) []string {
	p.t.Helper()
	line, ok := p.line()
	words := strings.Fields(line)
	if !ok || len(words) == 0 || words[0] != word {
		p.t.Fatalf("the process said %q, want %q", line, word)
	}
	return words[1:]
}

// begin lets a process go on that waits for a line.
func (p *process) begin() {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, "\n"); err != nil {
		p.t.Fatal(err)
	}
}

// kill ends the process as kill -9 does, and returns what it had said until then.
func (p *process) kill() (rest []string) {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	for line, ok := p.line(); ok; line, ok = p.line() {
		rest = append(rest, line)
	}
	_ = p.cmd.Wait()
	return rest
}

func parse(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
