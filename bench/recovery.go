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

// recoveryCommand is the first argument for the measurement of the recovery after a kill -9.
const recoveryCommand = "recovery"

// recoverySystems are the systems in the comparison of the README that need servers.
var recoverySystems = []system{holdfastServers, riverSystem, asynqSystem, plain}

// recoveryBench contains the options and the results of one execution of the command.
type recoveryBench struct {
	scale
	trials       int
	settle       time.Duration // time from the start of the second worker to the kill of the first one
	giveUpAfter  time.Duration // a trial ends when no task has reported for this time
	tasks        int           // stored before a broker is killed
	taskDuration time.Duration // how long each of these tasks takes

	workers []killedWorkers
	brokers []killedBrokers
}

// killedWorkers contains the results of a system whose worker was killed.
type killedWorkers struct {
	system  string
	trials  int
	took    []time.Duration // times from the kill until tasks of the killed worker started again, in ascending order
	missing int             // tasks that did not start again
}

// killedBrokers contains the results of a system whose broker was killed. Each trial has one element.
type killedBrokers struct {
	system      string
	twice, lost []int // numbers of tasks
}

func runRecovery(ctx context.Context, args []string) error {
	r := &recoveryBench{scale: scale{Options: load.Defaults()}}
	set := flag.NewFlagSet("bench "+recoveryCommand, flag.ExitOnError)
	names := set.String("systems", "", "`names` of the systems, separated by commas; empty means all")
	parts := set.String("only", "", "what to kill: worker or broker; empty means both")
	path := set.String("report", "", "Markdown `file` to write; empty prints the page")
	set.IntVar(&r.trials, "trials", 5, "number of kills for each figure")
	set.DurationVar(&r.giveUpAfter, "patience", 3*time.Minute, "time without a start or end of a task after which a trial ends; River needs more than an hour")
	set.DurationVar(&r.settle, "settle", 2*time.Second, "worker: age of the second worker at the kill")
	set.IntVar(&r.tasks, "tasks", 1000, "broker: number of tasks")
	set.DurationVar(&r.taskDuration, "lasts", 200*time.Millisecond, "broker: duration of each task")
	_ = set.Parse(args) // exits the program on an error
	if set.NArg() > 0 || !slices.Contains([]string{"", "worker", "broker"}, *parts) || min(r.trials, r.tasks-4*inFlight) < 1 ||
		min(r.giveUpAfter, r.taskDuration) <= 0 || r.settle < 0 {
		return fmt.Errorf("invalid arguments: durations and counts must be positive, -tasks must be more than %d, -only is worker or broker; see -help", 4*inFlight)
	}
	list := selectSystems(recoverySystems, *names)
	if len(list) == 0 {
		return errors.New("no system can be measured: no server URL is set; run: make bench-recovery")
	}
	p := recoveryPage{when: time.Now(), command: command("make bench-recovery", set), cores: runtime.NumCPU(), recoveryBench: r, systems: list}
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

// killWorkers runs the trials of killWorker for a system and appends the result to r.workers.
func (r *recoveryBench) killWorkers(ctx context.Context, s system) error {
	found := killedWorkers{system: s.name}
	for range r.trials {
		took, err := r.killWorker(ctx, s)
		if err != nil {
			return err
		}
		found.trials++
		found.took = append(found.took, took...)
		found.missing += inFlight - len(took)
		fmt.Fprintf(os.Stderr, "%s: %d of %d tasks of a killed worker started again, the last after %s\n", s.name, len(took), inFlight, slices.Max(append(took, 0)))
	}
	slices.Sort(found.took)
	r.workers = append(r.workers, found)
	return nil
}

// killWorker starts a worker with as many endless tasks as it can run, and a second worker that is idle. Then it kills
// the first worker. It returns, in ascending order, how long after the kill the second worker started each task. Tasks
// that did not start again are missing.
func (r *recoveryBench) killWorker(ctx context.Context, s system) (took []time.Duration, err error) {
	if err := s.reset(ctx); err != nil {
		return nil, fmt.Errorf("reset: %w", err)
	}
	const forever = 24 * time.Hour
	first, err := startEventWorker(ctx, s, r.scale, forever)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, first.kill()) }()
	if err := store(ctx, s, inFlight); err != nil {
		return nil, err
	}
	if err := watchUntil(ctx, first.events, r.Patience, tally{}, func(t tally) bool { return len(t) == inFlight }); err != nil {
		return nil, fmt.Errorf("start %d tasks: %w", inFlight, err)
	}
	second, err := startEventWorker(ctx, s, r.scale, forever)
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
	restarted := tally{}
	err = watchUntil(ctx, second.events, r.giveUpAfter, restarted, func(t tally) bool {
		if len(t) > len(took) {
			took = append(took, time.Since(killed))
		}
		return len(t) == inFlight
	})
	if errors.Is(err, errTimeout) {
		err = nil // the missing tasks are a result
	}
	return took, err
}

// privateRabbitMQ is the script that starts and kills a RabbitMQ server that only this command uses.
const privateRabbitMQ = "scripts/private-rabbitmq"

// killBrokers starts a RabbitMQ server and kills it while the systems that need one use it.
func (r *recoveryBench) killBrokers(ctx context.Context, list []system) (err error) {
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
		fmt.Fprintln(os.Stderr, "RabbitMQ is not installed: the kills of brokers are skipped")
		return nil
	} else if err != nil {
		return err
	}
	sharedURL := os.Getenv(amqpURL)
	deletePlace := func(ctx context.Context) error { // a schema of Holdfast must not be used with another broker
		if !slices.ContainsFunc(list, func(s system) bool { return s.ours }) {
			return nil
		}
		return holdfastPlace.delete(ctx)
	}
	if err := errors.Join(deletePlace(ctx), os.Setenv(amqpURL, url)); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, deletePlace(context.WithoutCancel(ctx)), os.Setenv(amqpURL, sharedURL))
	}()
	for _, s := range list {
		found := killedBrokers{system: s.name}
		for range r.trials {
			twice, lost, err := r.killBroker(ctx, s, rabbit)
			if err != nil {
				return fmt.Errorf("%s, kill the broker: %w", s.name, err)
			}
			found.twice, found.lost = append(found.twice, twice), append(found.lost, lost)
			fmt.Fprintf(os.Stderr, "%s: of %d tasks, %d ran twice and %d did not run after the broker was killed\n", s.name, r.tasks, twice, lost)
		}
		r.brokers = append(r.brokers, found)
	}
	return nil
}

// quietTime is how long no handler must have started or ended before a trial ends.
const quietTime = 10 * time.Second

// killBroker kills and restarts the broker while a worker runs tasks. It returns how many tasks ran twice and how many
// did not run.
func (r *recoveryBench) killBroker(ctx context.Context, s system, rabbit func(context.Context, string) (string, error)) (twice, lost int, err error) {
	if err := s.reset(ctx); err != nil {
		return 0, 0, fmt.Errorf("reset: %w", err)
	}
	// RabbitMQ 3.10 writes the list of its quorum queues to the disk every three minutes and at a graceful stop. After
	// a kill, a queue that is not in the list is empty. The restart writes the list, because queues in production are
	// older than three minutes.
	if _, err := rabbit(ctx, "restart"); err != nil {
		return 0, 0, err
	}
	if err := store(ctx, s, r.tasks); err != nil {
		return 0, 0, err
	}
	worker, err := startEventWorker(ctx, s, r.scale, r.taskDuration)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, worker.kill()) }()
	seen := tally{}
	if err := watchUntil(ctx, worker.events, r.Patience, seen, func(t tally) bool { return len(t) >= 4*inFlight }); err != nil {
		return 0, 0, fmt.Errorf("start %d tasks: %w", 4*inFlight, err)
	}
	for _, verb := range []string{"kill", "up"} {
		if _, err := rabbit(ctx, verb); err != nil {
			return 0, 0, err
		}
	}
	err = watchUntil(ctx, worker.events, r.giveUpAfter, seen, func(t tally) bool { return t.ended() == r.tasks })
	if err == nil {
		err = watchUntil(ctx, worker.events, quietTime, seen, func(tally) bool { return false })
	}
	if err != nil && !errors.Is(err, errTimeout) {
		return 0, 0, err
	}
	return seen.twice(), r.tasks - seen.ended(), nil
}

// store stores n tasks with different payloads.
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

// tally counts how often the handlers of each task started and ended.
type tally map[string]struct{ started, ended int }

func (t tally) add(event handlerEvent) {
	counts := t[event.Task]
	if event.Ended {
		counts.ended++
	} else {
		counts.started++
	}
	t[event.Task] = counts
}

// ended returns how many tasks have ended at least once.
func (t tally) ended() (n int) {
	for _, counts := range t {
		n += min(counts.ended, 1)
	}
	return n
}

// twice returns how many tasks have started more than once.
func (t tally) twice() (n int) {
	for _, counts := range t {
		if counts.started > 1 {
			n++
		}
	}
	return n
}

var errTimeout = errors.New("timeout: no report of a task")

// watchUntil adds the events of a worker to a tally until enough returns true. It returns errTimeout if no event
// arrives for the duration patience.
func watchUntil(ctx context.Context, events <-chan handlerEvent, patience time.Duration, into tally, enough func(tally) bool) error {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for !enough(into) {
		select {
		case event, ok := <-events:
			if !ok {
				return errors.New("the worker ended")
			}
			into.add(event)
			timeout.Reset(patience)
		case <-timeout.C:
			return errTimeout
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
