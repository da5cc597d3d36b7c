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
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// A test with several processes starts the test binary again. Two environment variables have the name of a role and the
// path of the file. The process writes its results as lines.
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
	if err := runRole(context.Background(), role, os.Getenv(pathVariable)); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

// runRole is the main function of another process.
func runRole(ctx context.Context, role, path string) error {
	s, err := sqlite.Open(ctx, sqlite.Options{Path: path, Create: true})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	s.SetBusyLimit(slow.Patience()) // the machine may be busy
	switch role {
	case "own":
		release, err := s.Own()
		if err != nil {
			return err
		}
		worker, err := s.RegisterWorker(ctx, store.WorkerInfo{Name: "worker"}, time.Hour)
		if err != nil {
			return err
		}
		fmt.Println("owned", worker)
		awaitParent()
		return release()
	case "migrate":
		applied, err := s.MigrateUp(ctx)
		fmt.Println("applied", len(applied))
		return err
	case "insert":
		return insertUntilEnd(ctx, s)
	case "insert twice":
		return insertTwice(ctx, s)
	case "claim":
		return claimAll(ctx, s)
	case "unique":
		return insertKeys(ctx, s)
	}
	return fmt.Errorf("no such role: %s", role)
}

// awaitParent returns when the parent closes the pipe or ends.
func awaitParent() { _, _ = io.Copy(io.Discard, os.Stdin) }

// insertUntilEnd inserts batches without a pause until the parent closes the pipe. It writes the last id of each
// accepted batch.
func insertUntilEnd(ctx context.Context, s *sqlite.Store) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		awaitParent()
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

// insertTwice inserts five tasks, waits for a line, and inserts five more. It writes the results, and ends when the
// parent closes the pipe.
func insertTwice(ctx context.Context, s *sqlite.Store) error {
	input := bufio.NewReader(os.Stdin)
	for range 2 {
		if _, err := s.Insert(ctx, newTasks(5), time.Hour); err != nil {
			fmt.Println("refused", strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println("stored")
		}
		_, _ = input.ReadString('\n')
	}
	return nil
}

// claimAll tries to claim every task, in a random order, and writes the ids of the claimed tasks.
func claimAll(ctx context.Context, s *sqlite.Store) error {
	page, err := s.List(ctx, store.Filter{Limit: 1 << 20})
	if err != nil {
		return err
	}
	tasks := page.Tasks
	worker, err := s.RegisterWorker(ctx, store.WorkerInfo{Name: "worker"}, time.Hour)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // all processes start together
	order := rand.Perm(len(tasks))
	for len(order) > 0 {
		page := make([]message.Ticket, min(7, len(order)))
		for i := range page {
			page[i] = message.Ticket{Task: tasks[order[i]].ID, Attempt: 1}
		}
		order = order[len(page):]
		claims, err := s.Claim(ctx, worker, store.AnyOf("t"), page, store.IntoExecutors)
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

// insertKeys inserts tasks with unique keys that all such processes use, and writes the result of each insert.
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

// process is a process that a test has started.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
}

// start starts a process with a role. When the test ends, start's cleanup kills the process.
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

// line returns the next line, and false if there is none.
func (p *process) line() (string, bool) {
	more := p.lines.Scan()
	return p.lines.Text(), more
}

// expect reads the next line, which must begin with word, and returns the other words.
func (p *process) expect(word string) []string {
	p.t.Helper()
	line, ok := p.line()
	words := strings.Fields(line)
	if !ok || len(words) == 0 || words[0] != word {
		p.t.Fatalf("the process wrote %q, want %q", line, word)
	}
	return words[1:]
}

// begin sends the line that a process waits for, so that the process continues.
func (p *process) begin() {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, "\n"); err != nil {
		p.t.Fatal(err)
	}
}

// kill kills the process as kill -9 does, and returns the remaining lines.
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
