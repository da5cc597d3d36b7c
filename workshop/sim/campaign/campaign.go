// Package campaign builds the simulator with a runtime that replays exactly, optionally with a mutant, and simulates
// many seeds in several processes.
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

	"github.com/holdfastq/holdfast/workshop/sim/patch"
)

const pkg = "./workshop/sim"

// Options are the options of a campaign.
type Options struct {
	Root      string       // root directory of the module
	Work      string       // directory for the binary and the edited sources
	Mutant    []patch.Edit // edits of the sources of the module; may be empty
	Seed      uint64       // the first seed
	Seeds     int          // number of seeds
	Processes int          // number of processes at once
	Without   []string     // parts to remove from the plans
	StopFirst bool         // stop at the first seed that fails, and do not shrink its plan
	Journal   bool         // print every step to standard output
	// Seen, if not nil, is called after every seed. Calls do not overlap.
	Seen func(Seed)
}

// Seed is the result of one seed.
type Seed struct {
	Seed        uint64
	Violation   string
	Without     []string // parts that the smallest failing plan does not need
	Sum         uint64   // equal sums mean equal simulations
	Steps       int
	Tasks       int // accepted tasks
	Started     int // executions
	Early       int // workers fenced before their leases expired
	Excused     int // the part of Early whose processes were live but could not report in time
	Lost        int // tickets that the janitor reported as lost
	Predicted   int // predictions of explanations that came true
	Changed     int // predictions that another cause replaced
	Operated    int // changes of tasks by operations
	Interrupted int // kills of janitors while an operation was running
	Pauses      int // gates that were closed
	Blocked     int // tasks that were blocked at a gate
	Released    int // tasks that were released from a gate
	Limited     int // limits that were set
	Permitted   int // tasks that got permits
	Tripped     int // breakers that tripped
	Probed      int // tasks that got permits of breakers
	Rated       int // times that a rate of faults had to trip a breaker
	Typed       int // tickets that entered type queues
	Unparked    int // tasks whose wait for a handler a registration ended
	Expired     int // tasks that are dead because their deadline passed while they waited
	Turns       int // ordered tasks that started after they had waited
	Doomed      int // ordered tasks that were doomed
	Unblocked   int // dead ordered tasks that the person retried, archived or deleted, to let others start
	Slots       int // tasks that got slots of their topics
	Compared    int // decisions about slots that were compared with the shares of two topics
	Cursors     int // parts of topics whose cursors were compared with the tasks
	Children    int // next tasks that were stored
	Saves       int // checkpoints that were stored
	Commits     int // successes that CompleteTx stored
	Late        int // checkpoints and calls of CompleteTx that were refused
	Exact       bool
}

// Replay returns the command that simulates the seed again.
func (s Seed) Replay() string {
	command := fmt.Sprintf("make sim SEED=%d", s.Seed)
	if len(s.Without) > 0 {
		command += " WITHOUT=" + strings.Join(s.Without, ",")
	}
	return command
}

// shareMore makes small groups of tickets share messages. The unedited code needs hundreds of tickets for that, more
// than a simulation has.
var shareMore = patch.Edit{File: "internal/message/message.go", Old: "\tcase calls >= 4:\n\t\treturn min(max(n/8, 1), 64)\n", New: "\tcase n > 1:\n\t\treturn min(n/2, 64)\n"}

// releaseFew makes a janitor release blocked tasks in steps of two. A simulation has too few tasks for larger steps.
var releaseFew = patch.Edit{File: "janitor/gates.go", Old: "releaseBatch = 1000", New: "releaseBatch = 2"}

// Build compiles the simulator into o.Work. The error contains the output of the compiler.
func Build(o Options) error {
	if err := os.MkdirAll(o.Work, 0o755); err != nil {
		return err
	}
	return patch.Build(o.Root, o.Work, pkg, o.binary(), slices.Concat(patch.Deterministic(), []patch.Edit{shareMore, releaseFew}, o.Mutant))
}

func (o Options) binary() string { return filepath.Join(o.Work, "sim.test") }

// Run simulates the seeds with the binary that Build has compiled. It returns an error if a process of the campaign
// failed. A seed that breaks an invariant is not an error.
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
	n := max(1, min(o.Processes, o.Seeds))
	failed := make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			runs := (o.Seeds - i + n - 1) / n
			failed[i] = o.process(ctx, o.Seed+uint64(i), n, runs, seen)
		})
	}
	running.Wait()
	return errors.Join(failed...)
}

// hangLimit is the longest time that one seed may take, including the search for its smallest plan. Usually a seed
// takes milliseconds.
const hangLimit = 3 * time.Minute

// process simulates every n-th seed in one operating system process. If a seed does not end, process reports it as
// failed and ends the process.
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
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, o.binary(), args...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &output, &output, []*os.File{report}
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
	watchdog := time.AfterFunc(hangLimit, func() { _ = cmd.Process.Kill() })
	defer watchdog.Stop()
	lines := bufio.NewScanner(reports)
	for lines.Scan() {
		watchdog.Reset(hangLimit)
		var s Seed
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return fmt.Errorf("decode report: %w", err)
		}
		done++
		broken = broken || s.Violation != ""
		seen(s)
	}
	err = cmd.Wait()
	if !watchdog.Stop() && ctx.Err() == nil {
		seen(Seed{Seed: first + uint64(done*n), Violation: fmt.Sprintf("the simulation did not end within %s", hangLimit)})
		return nil
	}
	if ctx.Err() != nil || err == nil && done == runs || broken && (done == runs || o.StopFirst) {
		return nil
	}
	return fmt.Errorf("simulate seed %d: %w\n%s", first+uint64(done*n), err, tail(output.String(), 4000))
}

func tail(text string, n int) string { return text[max(0, len(text)-n):] }
