package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/load"
	hq "github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/tracing"
)

// featuresCommand is the first argument for the measurement of what each feature costs the tasks that use it.
const featuresCommand = "features"

// feature is a condition: tasks that use one feature.
type feature struct {
	name, title string
	// options returns the options of task i of n; nil means none.
	options func(i, n int) []hq.TaskOption
	limits  []store.Scope // limits that concern each task and never block one
	traced  bool
	subtask bool
	// handle is called by the handler; nil means that it does nothing.
	handle func(context.Context, holdfast.Task) error
	// next means that handle stores a next task. The next tasks are half of all tasks.
	next bool
}

const nextType = taskType + ".next"

// limitKey is the key of the tasks that four limits concern. One of the limits is for that key.
const limitKey = "limited"

var features = []feature{
	{name: "plain", title: "none: plain tasks"},
	{name: "priority", title: "priority: high for each task", options: always(hq.Priority(holdfast.PriorityHigh))},
	{name: "key", title: "key: ten tasks for each key", options: func(i, _ int) []hq.TaskOption {
		return []hq.TaskOption{hq.Key(strconv.Itoa(i / perKey))}
	}},
	{name: "unique", title: "unique key", options: func(i, _ int) []hq.TaskOption {
		return []hq.TaskOption{hq.Unique(strconv.Itoa(i))}
	}},
	{name: "tag", title: "tags: one tag", options: always(hq.Tags("bench"))},
	{name: "traced", title: "tracing: spans without an exporter", traced: true},
	{name: "output", title: "output: 40 bytes", handle: func(ctx context.Context, _ holdfast.Task) error {
		return hq.Output(ctx, strings.Repeat("o", 38))
	}},
	{name: "next", title: "next task: half of the tasks store the other half", next: true, handle: func(ctx context.Context, t holdfast.Task) error {
		return hq.Next(ctx, nextType, t.Payload)
	}},
	{name: "ordered", title: "order: ten tasks for each key, stored key by key", options: func(i, _ int) []hq.TaskOption {
		return []hq.TaskOption{hq.Ordered(strconv.Itoa(i / perKey))}
	}},
	{name: "topics", title: "topic: ten tasks for each topic, first tasks first", options: func(i, n int) []hq.TaskOption {
		return []hq.TaskOption{hq.Topic(strconv.Itoa(i % max(n/perKey, 1)))}
	}},
	{name: "limit", title: "limits: one", limits: fourLimits[:1]},
	{name: "limits", title: "limits: four, and a key", limits: fourLimits, options: always(hq.Key(limitKey))},
	{name: "subtask", title: "batch: subtasks", subtask: true},
}

// perKey is the number of tasks for each key or topic.
const perKey = 10

var fourLimits = []store.Scope{
	{Subject: store.Subject{Type: taskType}},
	{Subject: store.Subject{Queue: holdfast.DefaultQueue}},
	{Subject: store.Subject{Queue: holdfast.DefaultQueue, Type: taskType}},
	{Subject: store.Subject{Key: limitKey}},
}

func always(options ...hq.TaskOption) func(int, int) []hq.TaskOption {
	return func(int, int) []hq.TaskOption { return options }
}

// The columns of the figures. The processor times are in milliseconds for 1,000 tasks.
const (
	perSecond  = "tasks/s"
	cpuProcess = "CPU of the process"
	cpuServers = "CPU of the servers"
	first50    = "p50, ms"
	first99    = "p99, ms"
)

// The measurements of new topics, in an idle queue and beside a flood. newTopics is the number of topics.
const (
	idleName  = "idle"
	floodName = "flood"
	newTopics = 40
)

// featurePatience limits the time of one measurement, so that a task that does not run is an error.
const featurePatience = 15 * time.Minute

// featurePlaces are the places that are measured. Each measurement starts with an empty one.
var (
	featurePlace  = place{"bench_features", "bench-features"}
	featurePlaces = []system{
		{
			name: serversPlace, servers: []string{databaseURL, amqpURL}, open: openFeatures(featurePlace.settings()),
			reset: func(ctx context.Context) error {
				if err := featurePlace.reset(ctx); err != nil {
					return err
				}
				return execute(ctx, "checkpoint") // so that a measurement does not pay for the writes of earlier ones
			},
		},
		{name: filePlace, open: openFeatures(embeddedSettings), reset: holdfastEmbedded.reset},
	}
)

var featureSteps = func() (list []step) {
	for _, f := range features {
		list = append(list, step{name: f.name, startsEmpty: true, run: f.run})
	}
	return append(list, step{name: idleName, startsEmpty: true, run: measureNewTopics}, step{name: floodName, startsEmpty: true, run: measureNewTopics})
}()

// featureQueue is an open backend. The measurements use only its backend and Close.
type featureQueue struct {
	load.Queue
	backend *app.Backend
}

func (q featureQueue) Close() error { return q.backend.Close() }

func openFeatures(settings []string) func(context.Context, int) (queue, error) {
	return func(ctx context.Context, executors int) (queue, error) {
		b, err := openHoldfast(ctx, executors, settings)
		return featureQueue{backend: b}, err
	}
}

type onObservation func(holdfast.Observation)

func (f onObservation) Observe(o holdfast.Observation) { f(o) }

// serving calls do while a client runs tasks, of which one has already run. It calls handle for each task of taskType.
// settled gets the numbers of the results that the store has accepted, with that of the first task.
func serving(
	ctx context.Context, q queue, handle func(context.Context, holdfast.Task) error, settled func(n int), do func(context.Context, *hq.Client) error, opts ...hq.Option,
) error {
	ctx, cancel := context.WithTimeoutCause(ctx, featurePatience, fmt.Errorf("the tasks did not end in %s", featurePatience))
	defer cancel()
	c, err := hq.Over(q.(featureQueue).backend, append(opts, hq.NoSignals(), hq.Observer(onObservation(func(o holdfast.Observation) {
		if o.Kind == holdfast.ObservedSettled {
			settled(o.Count)
		}
	})))...)
	if err != nil {
		return err
	}
	const startType = taskType + ".start"
	nothing := func(context.Context, holdfast.Task, json.RawMessage) error { return nil }
	if err := errors.Join(hq.Handle(c, startType, nothing), hq.Handle(c, nextType, nothing), hq.Handle(c, taskType, func(ctx context.Context, t holdfast.Task, _ json.RawMessage) error {
		if handle == nil {
			return nil
		}
		return handle(ctx, t)
	})); err != nil {
		return errors.Join(err, c.Close())
	}
	ran := make(chan error, 1)
	go func() {
		err := c.Run(ctx)
		cancel() // if Run ends early, nothing else ends do
		ran <- err
	}()
	first, err := c.Enqueue(ctx, startType, nil)
	if err == nil {
		_, err = c.Wait(ctx, first.ID)
	}
	if err == nil {
		err = do(ctx, c)
	}
	return errors.Join(err, c.Close(), <-ran)
}

// run measures the tasks of a feature, from the first call that stores some until all results are stored. One call of
// tasks with the feature runs before, because its first use in a process prepares statements.
func (f feature) run(ctx context.Context, _ system, q queue, o scale) (any, error) {
	for _, scope := range f.limits {
		c := store.LimitChange{Scope: scope, Concurrency: new(store.MaxConcurrency)}
		if _, err := q.(featureQueue).backend.Store.SetLimit(ctx, store.Actor{Name: "bench"}, c); err != nil {
			return nil, err
		}
	}
	var opts []hq.Option
	if f.traced {
		opts = append(opts, hq.Tracer(tracing.New(sdktrace.NewTracerProvider())))
	}
	each := 1 // tasks that run for each stored one
	if f.next {
		each = 2
	}
	warmUp, stored := min(o.Batch, o.Backlog), (o.Backlog+each-1)/each
	var done atomic.Int64
	settled := make(chan struct{}, 1)
	found := make(figures)
	return found, serving(ctx, q, f.handle, func(n int) {
		done.Add(int64(n))
		select {
		case settled <- struct{}{}:
		default:
		}
	}, func(ctx context.Context, c *hq.Client) error {
		// storeAndRun stores tasks and waits until the store has all results, with those of the calls before.
		storeAndRun := func(first, n int) error {
			if err := f.store(ctx, c, first, n, o); err != nil {
				return err
			}
			for done.Load() < int64(1+(first+n)*each) {
				if _, err := receive(ctx, settled); err != nil {
					return err
				}
			}
			return nil
		}
		if err := storeAndRun(0, warmUp); err != nil {
			return err
		}
		before, err := processorTimes(os.Getpid())
		if err != nil {
			return err
		}
		began := time.Now()
		if err := storeAndRun(warmUp, stored); err != nil {
			return err
		}
		ran := load.Rate{Tasks: stored * each, Took: time.Since(began)}
		used, err := processorTimes(os.Getpid())
		found[perSecond] = ran.PerSecond()
		for name, time := range used {
			column := cpuServers
			if name == ownTime {
				column = cpuProcess
			}
			found[column] += ms(time-before[name]) * 1000 / float64(ran.Tasks)
		}
		return err
	}, opts...)
}

// store stores n tasks, o.Batch in each call. first is the number of the first task.
func (f feature) store(ctx context.Context, c *hq.Client, first, n int, o scale) error {
	put := func(tasks []hq.NewTask) error { _, err := c.EnqueueMany(ctx, tasks); return err }
	seal := func() error { return nil }
	if f.subtask {
		b, err := c.OpenBatch(ctx)
		if err != nil {
			return err
		}
		put = func(tasks []hq.NewTask) error { return b.AddTasks(ctx, tasks) }
		seal = func() error { return b.Seal(ctx) }
	}
	payload := json.RawMessage(strconv.Quote(strings.Repeat("x", o.Payload-2)))
	for end := first + n; first < end; first += o.Batch {
		var tasks []hq.NewTask
		for i := first; i < min(first+o.Batch, end); i++ {
			task := hq.NewTask{Type: taskType, Payload: payload}
			if f.options != nil {
				task.Options = f.options(i, n)
			}
			tasks = append(tasks, task)
		}
		if err := put(tasks); err != nil {
			return err
		}
	}
	return seal()
}

// receive returns the next value of the channel, or the reason why ctx is done.
func receive[T any](ctx context.Context, from <-chan T) (value T, err error) {
	select {
	case value = <-from:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return value, err
}

// measureNewTopics measures the time from Enqueue to the start of the first task of a topic, for one new topic after
// another, while the topic floodName has o.Backlog tasks that do nothing. It begins when a twentieth of these have
// started.
func measureNewTopics(ctx context.Context, _ system, q queue, o scale) (any, error) {
	c, err := hq.Over(q.(featureQueue).backend)
	if err != nil {
		return nil, err
	}
	flood := feature{options: always(hq.Topic(floodName))}
	if err := errors.Join(flood.store(ctx, c, 0, o.Backlog, o), c.Close()); err != nil {
		return nil, err
	}
	starts, flooded := make(chan time.Time, 1), make(chan struct{})
	var done atomic.Int64
	var times []time.Duration
	err = serving(ctx, q, func(_ context.Context, t holdfast.Task) error {
		if t.Topic != floodName {
			starts <- time.Now()
		} else if done.Add(1) == int64(o.Backlog/20+1) {
			close(flooded)
		}
		return nil
	}, func(int) {}, func(ctx context.Context, c *hq.Client) error {
		if o.Backlog > 0 { // a worker that has just started is another condition
			if _, err := receive(ctx, flooded); err != nil {
				return err
			}
		}
		for i := range newTopics {
			// A fixed interval could be in step with periodic work of the janitor.
			if err := backoff.Sleep(ctx, 10*time.Millisecond+rand.N(20*time.Millisecond)); err != nil {
				return err
			}
			began := time.Now()
			if _, err := c.Enqueue(ctx, taskType, nil, hq.Topic(strconv.Itoa(i))); err != nil {
				return err
			}
			at, err := receive(ctx, starts)
			if err != nil {
				return err
			}
			times = append(times, at.Sub(began))
		}
		if o.Backlog > 0 && done.Load() >= int64(o.Backlog) {
			return fmt.Errorf("the flood of %d tasks ended first; use a larger -flood", o.Backlog)
		}
		return nil
	})
	slices.Sort(times)
	return figures{first50: ms(load.Percentile(times, 50)), first99: ms(load.Percentile(times, 99))}, err
}

// featureBench contains the options and the results of one execution of the command.
type featureBench struct {
	load.Options
	rounds, tasks, flood int
	steps                []step
	places               []system
	found                map[string]results // by place; then by step, column and round
}

func runFeatures(ctx context.Context, args []string) error {
	b := &featureBench{Options: load.Defaults(), found: make(map[string]results)}
	set := flag.NewFlagSet("bench "+featuresCommand, flag.ExitOnError)
	only := set.String("only", "", "`features` to measure, separated by commas, besides plain tasks: "+strings.Join(featureNames(), ", ")+"; empty means all")
	at := set.String("places", serversPlace+","+filePlace, "`places` to measure")
	path := set.String("report", "", "Markdown `file` to write; empty prints the page")
	set.IntVar(&b.rounds, "rounds", 5, "number of `rounds`; the tables show medians")
	set.IntVar(&b.tasks, "tasks", 100_000, "number of tasks in each measurement of a rate")
	set.IntVar(&b.flood, "flood", 1_000_000, "flood: number of tasks of the topic beside which other topics begin")
	_ = set.Parse(args) // exits the program on an error
	if err := b.check(set.Args(), *only, *at); err != nil {
		return err
	}
	p := featurePage{
		featureBench: b, when: time.Now(), command: command("make bench-features", set), cores: runtime.NumCPU(), versions: []string{runtime.Version()},
	}
	versions, err := serverVersions(ctx, b.places)
	if err != nil {
		return err
	}
	p.versions = append(p.versions, versions...)
	for _, where := range b.places {
		if err := b.measure(ctx, where); err != nil {
			return fmt.Errorf("%s: %w", where.name, err)
		}
	}
	return writePage(*path, p.page())
}

func featureNames() (names []string) {
	for _, st := range featureSteps {
		names = append(names, st.name)
	}
	return names
}

// check checks the options, and selects the features and the places with the given names. Plain tasks are always
// measured, because the ratios compare with them.
func (b *featureBench) check(rest []string, only, at string) error {
	if len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q", rest[0])
	}
	if b.rounds < 1 || b.tasks < 1 || b.flood < 1 {
		return errors.New("every number must be at least 1")
	}
	names := featureNames()
	if only != "" {
		names = append(strings.Split(only, ","), features[0].name)
	}
	for _, name := range names {
		if !slices.Contains(featureNames(), name) {
			return fmt.Errorf("unknown feature %q; use %s", name, strings.Join(featureNames(), ", "))
		}
	}
	b.steps = slices.DeleteFunc(slices.Clone(featureSteps), func(st step) bool { return !slices.Contains(names, st.name) })
	for _, name := range strings.Split(at, ",") {
		i := slices.IndexFunc(featurePlaces, func(s system) bool { return s.name == name })
		if i < 0 {
			return fmt.Errorf("unknown place %q; use %s or %s", name, serversPlace, filePlace)
		}
		if missing := featurePlaces[i].missing(); len(missing) > 0 {
			return fmt.Errorf("%s not set; run: make bench-features", strings.Join(missing, ", "))
		}
		b.places = append(b.places, featurePlaces[i])
	}
	return nil
}

// measure runs all rounds at a place, and deletes the test data.
func (b *featureBench) measure(ctx context.Context, where system) (err error) {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		if where.name == filePlace {
			err = errors.Join(err, os.RemoveAll(embeddedFolder))
		} else {
			err = errors.Join(err, featurePlace.delete(ctx))
		}
	}()
	b.found[where.name] = make(results)
	for round := range b.rounds {
		for _, st := range order(b.steps, round) {
			o := scale{Options: b.Options, Backlog: b.tasks}
			switch st.name {
			case idleName:
				o.Backlog = 0
			case floodName:
				o.Backlog = b.flood
			}
			f, err := measure(ctx, where, st, o)
			if err != nil {
				return fmt.Errorf("%s: %w", st.name, err)
			}
			for column, value := range f {
				b.found[where.name].add(round, st.name, column, value)
				fmt.Fprintf(os.Stderr, "%d  %-8s %-10s %-20s %12.3f\n", round+1, where.name, st.name, column, value)
			}
		}
	}
	return nil
}
