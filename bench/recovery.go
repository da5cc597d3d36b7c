package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast/internal/load"
)

// recoveryCommand is the first argument that asks what each system does after a kill -9, instead of how fast it is.
const recoveryCommand = "recovery"

// recoverable are the systems of the comparison in README that have servers.
var recoverable = []system{holdfastServers, riverSystem, asynqSystem, machinerySystem, plain}

// recovering is one run: what is killed, and what was found.
type recovering struct {
	scale
	trials   int
	settle   time.Duration // that a second worker has before the first one is killed
	patience time.Duration
	tasks    int           // while a broker is killed
	lasts    time.Duration // of each of them

	workers []killedWorkers
	brokers []killedBrokers
}

// killedWorkers is what was found of a system whose worker was killed.
type killedWorkers struct {
	system  string
	trials  int
	took    []time.Duration // from the kill until a task of the dead worker began again, in ascending order
	missing int             // tasks that did not
}

// killedBrokers is what was found of a system whose broker was killed, by trial.
type killedBrokers struct {
	system      string
	twice, lost []int // tasks
}

func runRecovery(ctx context.Context, args []string) error {
	r := &recovering{scale: scale{Options: load.Defaults()}}
	set := flag.NewFlagSet("bench "+recoveryCommand, flag.ExitOnError)
	names := set.String("systems", "", "names of systems, separated by commas; empty means all")
	parts := set.String("only", "", "worker or broker: which of them to kill; empty means both")
	path := set.String("report", "", "the Markdown file to write; empty means that the page goes to stdout")
	set.IntVar(&r.trials, "trials", 5, "kills for each figure")
	set.DurationVar(&r.patience, "patience", 3*time.Minute, "how long to wait for tasks after a kill; River needs more than an hour")
	set.DurationVar(&r.settle, "settle", 2*time.Second, "worker: how long the second worker has run at the kill")
	set.IntVar(&r.tasks, "tasks", 1000, "broker: tasks that are stored")
	set.DurationVar(&r.lasts, "lasts", 200*time.Millisecond, "broker: how long each of them takes")
	_ = set.Parse(args) // it exits
	if set.NArg() > 0 || !slices.Contains([]string{"", "worker", "broker"}, *parts) || min(r.trials, r.tasks-4*inFlight) < 1 ||
		min(r.patience, r.lasts) <= 0 || r.settle < 0 {
		return fmt.Errorf("there are no arguments, durations are positive, and there are more than %d tasks; see -help", 4*inFlight)
	}
	list := chosen(recoverable, *names)
	if len(list) == 0 {
		return errors.New("no system can be measured; run: make bench-recovery")
	}
	p := recoveryPage{when: time.Now(), command: command("make bench-recovery", set), cores: runtime.NumCPU(), recovering: r, systems: list}
	var err error
	if p.versions, err = moduleVersions(); err != nil {
		return err
	}
	if p.servers, err = serverVersions(ctx, list); err != nil {
		return err
	}
	if *parts != "broker" {
		for _, s := range list {
			if err := r.killWorkers(ctx, s); err != nil {
				return fmt.Errorf("%s, kill a worker: %w", s.name, err)
			}
		}
	}
	if *parts != "worker" {
		if err := r.killBrokers(ctx, list); err != nil {
			return err
		}
	}
	return p.write(*path)
}

// killWorkers has one worker run as many tasks as it can, which do not end, and another one wait. It kills the first.
func (r *recovering) killWorkers(ctx context.Context, s system) error {
	found := killedWorkers{system: s.name}
	for range r.trials {
		took, err := r.killWorker(ctx, s)
		if err != nil {
			return err
		}
		found.trials++
		found.took = append(found.took, took...)
		found.missing += inFlight - len(took)
		fmt.Fprintf(os.Stderr, "%s: %d of %d tasks of a killed worker began again, the last after %s\n", s.name, len(took), inFlight, slices.Max(append(took, 0)))
	}
	slices.Sort(found.took)
	r.workers = append(r.workers, found)
	return nil
}

func (r *recovering) killWorker(ctx context.Context, s system) (took []time.Duration, err error) {
	if err := s.fresh(ctx); err != nil {
		return nil, fmt.Errorf("make it empty: %w", err)
	}
	const forever = 24 * time.Hour
	first, err := hireAttendant(ctx, s, r.scale, forever)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, first.kill()) }()
	if err := store(ctx, s, inFlight); err != nil {
		return nil, err
	}
	if err := watchUntil(ctx, first.said, r.Patience, tally{}, func(t tally) bool { return len(t) == inFlight }); err != nil {
		return nil, fmt.Errorf("start %d tasks: %w", inFlight, err)
	}
	second, err := hireAttendant(ctx, s, r.scale, forever)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, second.kill()) }()
	select {
	case <-time.After(r.settle):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	killed := time.Now()
	if err := first.kill(); err != nil {
		return nil, err
	}
	again := tally{}
	err = watchUntil(ctx, second.said, r.patience, again, func(t tally) bool {
		if len(t) > len(took) {
			took = append(took, time.Since(killed))
		}
		return len(t) == inFlight
	})
	if errors.Is(err, errPatience) {
		err = nil // which tasks are missing is the figure
	}
	return took, err
}

// privateRabbitMQ is the script that starts and kills one.
const privateRabbitMQ = "scripts/private-rabbitmq"

// killBrokers kills a RabbitMQ of its own below the systems that need one.
func (r *recovering) killBrokers(ctx context.Context, list []system) (err error) {
	list = slices.DeleteFunc(slices.Clone(list), func(s system) bool { return !slices.Contains(s.servers, amqpURL) })
	folder, err := os.MkdirTemp("", "holdfast-bench-")
	if err != nil {
		return err
	}
	rabbit := func(ctx context.Context, verb string) (string, error) {
		cmd := exec.CommandContext(ctx, privateRabbitMQ, verb)
		cmd.Env, cmd.Stderr = append(os.Environ(), "RUN="+folder), os.Stderr
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("%s %s: %w", privateRabbitMQ, verb, err)
		}
		return strings.TrimSpace(string(out)), err
	}
	defer func() {
		_, wiped := rabbit(context.WithoutCancel(ctx), "wipe")
		err = errors.Join(err, wiped, os.RemoveAll(folder))
	}()
	url, err := rabbit(ctx, "up")
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 3 {
		fmt.Fprintln(os.Stderr, "RabbitMQ is not installed, so none is killed")
		return nil
	} else if err != nil {
		return err
	}
	shared := os.Getenv(amqpURL)
	leave := func(ctx context.Context) error { // the schema of Holdfast names queues of one broker
		if !slices.ContainsFunc(list, func(s system) bool { return s.ours }) {
			return nil
		}
		return holdfastPlace.delete(ctx)
	}
	if err := errors.Join(leave(ctx), os.Setenv(amqpURL, url)); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, leave(context.WithoutCancel(ctx)), os.Setenv(amqpURL, shared))
	}()
	for _, s := range list {
		found := killedBrokers{system: s.name}
		for range r.trials {
			twice, lost, err := r.killBroker(ctx, s, rabbit)
			if err != nil {
				return fmt.Errorf("%s, kill the broker: %w", s.name, err)
			}
			found.twice, found.lost = append(found.twice, twice), append(found.lost, lost)
			fmt.Fprintf(os.Stderr, "%s: of %d tasks %d ran twice and %d did not run after the broker was killed\n", s.name, r.tasks, twice, lost)
		}
		r.brokers = append(r.brokers, found)
	}
	return nil
}

// aftermath is how long no handler begins until a trial is over.
const aftermath = 10 * time.Second

// killBroker has a worker run tasks, kills the broker, starts it again, and counts what ran twice or not at all.
func (r *recovering) killBroker(ctx context.Context, s system, rabbit func(context.Context, string) (string, error)) (twice, lost int, err error) {
	if err := s.fresh(ctx); err != nil {
		return 0, 0, fmt.Errorf("make it empty: %w", err)
	}
	// RabbitMQ 3.10 writes the list of its quorum queues to the disk every three minutes, and at a graceful stop. A queue
	// that is not in it is empty after a kill. Queues in use are older than that.
	if _, err := rabbit(ctx, "restart"); err != nil {
		return 0, 0, err
	}
	if err := store(ctx, s, r.tasks); err != nil {
		return 0, 0, err
	}
	worker, err := hireAttendant(ctx, s, r.scale, r.lasts)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, worker.kill()) }()
	seen := tally{}
	if err := watchUntil(ctx, worker.said, r.Patience, seen, func(t tally) bool { return len(t) >= 4*inFlight }); err != nil {
		return 0, 0, fmt.Errorf("start %d tasks: %w", 4*inFlight, err)
	}
	for _, verb := range []string{"kill", "up"} {
		if _, err := rabbit(ctx, verb); err != nil {
			return 0, 0, err
		}
	}
	err = watchUntil(ctx, worker.said, r.patience, seen, func(t tally) bool { return t.ended() == r.tasks })
	if err == nil {
		err = watchUntil(ctx, worker.said, aftermath, seen, func(tally) bool { return false })
	}
	if err != nil && !errors.Is(err, errPatience) {
		return 0, 0, err
	}
	return seen.twice(), r.tasks - seen.ended(), nil
}

// store stores n tasks whose payloads differ.
func store(ctx context.Context, s system, n int) error {
	q, err := s.open(ctx, inFlight)
	if err != nil {
		return err
	}
	payloads := make([][]byte, n)
	for i := range payloads {
		payloads[i] = fmt.Appendf(nil, "%q", fmt.Sprintf("task %d", i))
	}
	return errors.Join(q.Fill(ctx, payloads), q.Close())
}

// tally counts the handlers of each task.
type tally map[string]struct{ began, ended int }

func (t tally) add(a attended) {
	counts := t[a.Task]
	if a.Ended {
		counts.ended++
	} else {
		counts.began++
	}
	t[a.Task] = counts
}

// ended is how many tasks have been run to their end, at least once.
func (t tally) ended() (n int) {
	for _, counts := range t {
		n += min(counts.ended, 1)
	}
	return n
}

// twice is how many tasks have begun more than once.
func (t tally) twice() (n int) {
	for _, counts := range t {
		if counts.began > 1 {
			n++
		}
	}
	return n
}

var errPatience = errors.New("nothing happened for too long")

// watchUntil adds what a worker says to a tally until enough of it is there. It returns errPatience if the worker says
// nothing for a while.
func watchUntil(ctx context.Context, said <-chan attended, patience time.Duration, into tally, enough func(tally) bool) error {
	silence := time.NewTimer(patience)
	defer silence.Stop()
	for !enough(into) {
		select {
		case a, ok := <-said:
			if !ok {
				return errors.New("the worker ended")
			}
			into.add(a)
			silence.Reset(patience)
		case <-silence.C:
			return errPatience
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
