// Package campaign builds the simulator with a runtime that replays exactly, and perhaps with a mutant in it,
// and runs many seeds in several processes.
package campaign

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/internal/sim/patch"
)

const pkg = "./internal/sim"

// Options says what to run.
type Options struct {
	Root      string       // of the module
	Work      string       // a folder for the binary and what goes with it
	Mutant    []patch.Edit // of the module's sources
	Seed      uint64       // the first
	Runs      int
	Processes int      // at once
	Without   []string // parts of the plans to leave out
	StopFirst bool     // end at the first seed that fails, and do not look for its smallest plan
	Journal   bool     // what happens, step by step, to standard output
	// Seen, if set, is called after every seed, from one goroutine at a time.
	Seen func(Seed)
}

// Seed is what became of one.
type Seed struct {
	Seed      uint64
	Violation string
	Without   []string // parts that the smallest failing plan does without
	Sum       uint64   // equal sums, equal runs
	Steps     int
	Tasks     int // accepted
	Started   int // executions
	Early     int // runs fenced before their lease was over
	Excused   int // of them, those of living processes that lost both signs and could not say so
	Lost      int // tickets that the engine found lost
	Exact     bool
}

// Replay is the command that repeats a seed.
func (s Seed) Replay() string {
	command := fmt.Sprintf("make sim SEED=%d", s.Seed)
	if len(s.Without) > 0 {
		command += " WITHOUT=" + strings.Join(s.Without, ",")
	}
	return command
}

// shareMore has few tickets share messages, as only hundreds do elsewhere: there are never hundreds here.
var shareMore = patch.Edit{File: "internal/message/message.go", Old: "\tcase calls >= 4:\n\t\treturn min(max(n/8, 1), 64)\n", New: "\tcase n > 1:\n\t\treturn min(n/2, 64)\n"}

// Build compiles the simulator into o.Work.
func Build(o Options) error {
	if err := os.MkdirAll(o.Work, 0o755); err != nil {
		return err
	}
	return patch.Build(o.Root, o.Work, pkg, o.binary(), slices.Concat(patch.Deterministic(), []patch.Edit{shareMore}, o.Mutant))
}

func (o Options) binary() string { return filepath.Join(o.Work, "sim.test") }

// Run runs the seeds with what Build has made. The error says that a process did not do its work, which a seed that fails
// is not.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	seen := func(s Seed) {
		mu.Lock()
		defer mu.Unlock()
		if o.Seen != nil && ctx.Err() == nil {
			o.Seen(s)
		}
		if s.Violation != "" && o.StopFirst {
			cancel()
		}
	}
	n := max(1, min(o.Processes, o.Runs))
	failed := make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			runs := (o.Runs - i + n - 1) / n
			failed[i] = o.process(ctx, o.Seed+uint64(i), n, runs, seen)
		})
	}
	running.Wait()
	return errors.Join(failed...)
}

// hangLimit is the most that a seed may take, with the search for its smallest plan. It takes milliseconds.
const hangLimit = 3 * time.Minute

// process runs every n-th seed. One that does not end fails, and takes those after it in its process along.
func (o Options) process(ctx context.Context, first uint64, n, runs int, seen func(Seed)) error {
	reports, report, err := os.Pipe()
	if err != nil {
		return err
	}
	defer reports.Close()
	args := []string{
		"-test.run", "^TestSeeds$", "-test.timeout", "0", "-report", "/dev/fd/3", "-seed", fmt.Sprint(first),
		"-stride", fmt.Sprint(n), "-runs", fmt.Sprint(runs), "-without", strings.Join(o.Without, ","),
	}
	if o.StopFirst {
		args = append(args, "-stop")
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, o.binary(), args...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &said, &said, []*os.File{report}
	if o.Journal {
		cmd.Args = append(cmd.Args, "-journal")
		cmd.Stdout = os.Stdout
	}
	if err := cmd.Start(); err != nil {
		report.Close()
		return err
	}
	report.Close()
	done, broken := 0, false
	hangs := time.AfterFunc(hangLimit, func() { _ = cmd.Process.Kill() })
	defer hangs.Stop()
	lines := bufio.NewScanner(reports)
	for lines.Scan() {
		hangs.Reset(hangLimit)
		var s Seed
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return fmt.Errorf("read a report: %w", err)
		}
		done++
		broken = broken || s.Violation != ""
		seen(s)
	}
	err = cmd.Wait()
	if !hangs.Stop() && ctx.Err() == nil {
		seen(Seed{Seed: first + uint64(done*n), Violation: fmt.Sprintf("it does not end within %s", hangLimit)})
		return nil
	}
	if ctx.Err() != nil || err == nil && done == runs || broken && (done == runs || o.StopFirst) {
		return nil
	}
	return fmt.Errorf("seed %d broke the simulator: %w\n%s", first+uint64(done*n), err, tail(said.String(), 4000))
}

func tail(text string, n int) string { return text[max(0, len(text)-n):] }
