package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/janitor"
	"github.com/holdfastq/holdfast/presence"
	"github.com/holdfastq/holdfast/producer"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/memory"
	"github.com/holdfastq/holdfast/workshop/sim/simbroker"
)

// All times are short, so that a simulation needs few steps.
const (
	lease        = 2 * time.Second
	heartbeat    = lease * 3 / 5 // heartbeat of the connections to the broker
	maxAttempts  = 3             // failures until a task is dead
	poisonLimit  = 3             // crashes until a poison task is dead
	concurrency  = 4
	sentinelTime = time.Second
	slack        = 6 * time.Second
)

// process is one start of a process of the plan. A restart creates a new process.
type process struct {
	world *world
	index int // in Plan.Roles
	role  Role
	name  string

	pid      int
	identity store.Process

	store  *memory.Client
	broker *simbroker.Client
	worker *consumer.Consumer // nil if the process has no worker
	ctx    context.Context
	cancel context.CancelFunc

	settings holdfast.SettingsSource

	dead         bool          // the process was killed or has ended
	gone         chan struct{} // closed when dead becomes true
	killed       time.Time     // when it was killed; zero if it was not
	killIn       int           // steps until it is killed; 0 means never
	killBefore   bool          // the kill comes before the effect of the last step, not after it
	restartAfter time.Duration

	stoppedUntil   time.Time
	resumed        chan struct{} // closed when it continues; nil if it is not stopped
	storeCut       bool
	storeCutAt     time.Time
	storeCutUntil  time.Time
	answersOnly    bool      // requests reach the store, but its answers are lost
	troubledUntil  time.Time // a fault may keep the process from working until this time
	storeBrokenAt  time.Time // when its sessions at the store were last ended
	brokerBrokenAt time.Time // when its connections to the broker were last broken
	unawareUntil   time.Time // the process may not know until this time that its presence was lost

	pausing  map[store.Subject]int // number of unfinished pauses of a person, by subject
	limiting map[store.Scope]int   // number of unfinished limit plans of a person, by limit
}

// start starts a process of the plan, with the given number of the start. The caller holds w.mu.
func (w *world) start(index, life int) {
	if now := w.processes[index]; now != nil && !now.dead && now.ctx.Err() == nil {
		return // the process was killed while it drained, and was already restarted
	}
	p := &process{world: w, index: index, role: w.plan.Roles[index]}
	p.name = fmt.Sprintf("%d.%d", index, life)
	p.troubledUntil = w.began
	w.assignID(p)
	p.store = w.store.Client(p.storeGate)
	p.store.SetNotifier(p.storeNotify)
	p.broker = w.broker.Client(&brokerNetwork{process: p, last: make(map[uint64]time.Time)})
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.gone = make(chan struct{})
	w.processes[index], w.lives[index] = p, life
	w.log.logf(time.Since(w.began), "process %s (%s) starts", p.name, p.role)
	p.broker.SetBlocked(w.state.blocked)
	if w.plan.Net.Breaks > 0 {
		p.keepBreaking()
	}
	w.processesRunning.Go(func() { p.runServices() })
}

// runServices runs the services of the process and returns when they have ended.
func (p *process) runServices() {
	log := p.logger()
	var stopSettings func()
	p.settings, stopSettings = p.watchSettings(log)
	services := make(chan struct{}, 3)
	running := 0
	run := func(f func()) {
		running++
		go func() { f(); services <- struct{}{} }()
	}
	switch p.role {
	case Produce:
		run(p.produce)
	case Person:
		run(p.operate)
		run(p.pauseAndResume)
		run(p.setLimits)
		run(p.unblockKeys)
	}
	var j *janitor.Janitor
	if p.role == Serve || p.role == Janitor {
		j = p.janitor(log)
		run(func() { p.must(j.Run(p.ctx)) })
	}
	if p.role == Serve || p.role == Worker {
		c := p.consumer(log, j)
		run(func() { p.mayFail(c.Run(p.ctx)) })
	}
	for range running {
		<-services
	}
	stopSettings()
	p.world.mu.Lock()
	p.die()
	p.world.mu.Unlock()
	_ = p.broker.Close()
	_ = p.store.Close()
	p.world.submit(func() {
		p.world.after(time.Duration(p.world.rng.Int64N(int64(closeDelay))), &step{what: "connections close", run: p.store.Disconnect})
	})
}

func (p *process) consumer(log logrus.FieldLogger, j *janitor.Janitor) *consumer.Consumer {
	handlers := new(consumer.Registry)
	for _, kind := range []string{"work", "poison", "hang", "brief", holdfast.TypeHTTP} {
		handlers.Add(kind, consumer.HandlerFunc(p.handle))
	}
	if p.world.plan.handles(p.index) {
		handlers.Add(special, consumer.HandlerFunc(p.handle))
	}
	if p.world.plan.once() { // a worker with this type has no buffer
		handlers.Add("once", consumer.HandlerFunc(p.handle))
	}
	o := consumer.Options{
		Store: claims{p.store, p}, Broker: p.broker, Topology: p.world.topology, Handlers: handlers, Settings: p.settings,
		Concurrency: concurrency, Lease: lease, Drain: time.Second, ParkFor: parkFor, Name: p.name, Log: log,
		Present: presence.Servers{Store: p.store, Broker: p.broker}, PID: p.pid, Process: p.identity,
	}
	if j != nil {
		o.OnReady, o.OnBlocked = j.Nudge, j.Blocked
	}
	c, err := consumer.New(o)
	p.must(err)
	p.world.mu.Lock()
	p.worker = c
	p.world.mu.Unlock()
	return c
}

// claims is the store of a worker. It reports the answers of claims to the checker.
type claims struct {
	*memory.Client
	process *process
}

// Claim implements store.Work.
func (c claims) Claim(ctx context.Context, worker holdfast.WorkerID, wanted []store.Wanted, tickets []message.Ticket, into store.Place) ([]store.Claim, error) {
	list, err := c.Client.Claim(ctx, worker, wanted, tickets, into)
	p := c.process
	p.world.mu.Lock()
	consumer := p.worker
	p.world.mu.Unlock()
	owned := time.Since(consumer.Status().RenewedAt) < lease*4/5-time.Millisecond
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	p.world.check.droppedEarly(tickets, list)
	if !p.dead && p.resumed == nil && p.ctx.Err() == nil && owned {
		p.world.check.claimsAnswered(list)
	}
	return list, err
}

// PassedOn and Park implement store.Tickets. The worker then acks the tickets, although another worker may have claimed
// their tasks meanwhile.
func (c claims) PassedOn(ctx context.Context, tickets []message.Ticket) error {
	c.process.world.check.givenAway(tickets)
	return c.Client.PassedOn(ctx, tickets)
}

func (c claims) Park(ctx context.Context, tickets []message.Ticket, wait time.Duration, why string) error {
	c.process.world.check.givenAway(tickets)
	return c.Client.Park(ctx, tickets, wait, why)
}

// Apply implements store.Work. It reports the results to the checker.
func (c claims) Apply(ctx context.Context, moves []holdfast.Transition) ([]bool, error) {
	c.process.world.mu.Lock()
	c.process.world.check.resultsSent(moves)
	c.process.world.mu.Unlock()
	return c.Client.Apply(ctx, moves)
}

// ReportTargets implements store.Breakers. It passes the reports on to the checker.
func (c claims) ReportTargets(ctx context.Context, reports []store.TargetReport) error {
	trips, p := c.process.world.check.trips, c.process
	p.world.mu.Lock()
	trips.reporting(p, reports)
	p.world.mu.Unlock()
	err := c.Client.ReportTargets(ctx, reports)
	p.world.mu.Lock()
	trips.reported(p, reports, err)
	p.world.mu.Unlock()
	return err
}

// checks is the store of a janitor. It passes the results of the janitor's checks on to the checker.
type checks struct {
	*memory.Client
	process *process
}

// StoreVerifyResult implements store.Verification.
func (c checks) StoreVerifyResult(ctx context.Context, result store.VerifyResult) error {
	c.process.world.mu.Lock()
	c.process.world.check.verified(result)
	c.process.world.mu.Unlock()
	return c.Client.StoreVerifyResult(ctx, result)
}

func (p *process) janitor(log logrus.FieldLogger) *janitor.Janitor {
	j, err := janitor.New(janitor.Options{
		Store: checks{p.store, p}, Desk: idleDesk{}, Broker: p.broker, Topology: p.world.topology, Settings: p.world.plan.forJanitors(p.settings), Lease: lease,
		PatrolAfter: 2 * time.Second, SentinelInterval: sentinelTime, SentinelSlack: slack, RebuildEvery: time.Second,
		Name: p.name, Log: log, Present: presence.Servers{Store: p.store, Broker: p.broker}, Machine: p,
	})
	p.must(err)
	return j
}

// settings returns the settings of the processes.
func (p *Plan) settings() holdfast.Settings {
	policy := holdfast.Policy{Strategy: holdfast.Fixed, Base: 300 * time.Millisecond, Jitter: 0.5,
		MaxAttempts: maxAttempts, MaxCrashes: 1000, MaxDeferrals: 10, AfterDeath: p.AfterDeath}
	poison := policy
	poison.MaxCrashes = poisonLimit
	brief := policy
	brief.Deadline = briefDeadline
	once := policy
	once.AtMostOnce = true
	delivery := policy
	delivery.MaxAttempts = 1000
	return holdfast.Settings{
		Defaults: holdfast.TypeSettings{Policy: policy},
		Types: map[string]holdfast.TypeSettings{
			"poison": {Policy: poison},
			"brief":  {Policy: brief},
			"once":   {Policy: once},
			"http":   {Policy: delivery, Timeout: deliveryTimeout, Breaker: p.Breaker},
			"hang":   {Policy: policy, Timeout: 700 * time.Millisecond, AbandonAfter: 2 * time.Second},
		},
	}
}

// produce enqueues the tasks of this process that no earlier start has begun to enqueue.
func (p *process) produce() {
	w := p.world
	source, err := producer.New(producer.Options{
		Store: p.store, Broker: p.broker, Topology: w.topology, Settings: p.settings, ConfirmTimeout: time.Second, OutboxGrace: time.Second,
	})
	if err != nil {
		panic(err) // the options are constants
	}
	done := make(chan struct{})
	n := 0
	w.mu.Lock()
	for _, task := range w.plan.Tasks {
		if task.By == p.index && w.todo[task.Name] {
			n++
			go func() { p.enqueue(source, task); done <- struct{}{} }()
		}
	}
	w.mu.Unlock()
	for range n {
		<-done
	}
	<-p.ctx.Done()
	p.must(source.Close())
}

func (p *process) enqueue(source *producer.Producer, task TaskPlan) {
	w := p.world
	select {
	case <-time.After(task.At - time.Since(w.began)):
	case <-p.ctx.Done():
		return
	}
	w.mu.Lock()
	gone, era := p.dead, w.state.fellBack
	if !gone {
		delete(w.todo, task.Name)
	}
	w.mu.Unlock()
	if gone {
		return
	}
	kind := "work"
	switch {
	case task.Once:
		kind = "once"
	case task.Special:
		kind = special
	case task.Poison:
		kind = "poison"
	case task.Hangs > 0:
		kind = "hang"
	case task.Brief:
		kind = "brief"
	case task.Target != "":
		kind = holdfast.TypeHTTP
	}
	result, err := source.Enqueue(p.ctx, holdfast.NewTask{Type: kind, Queue: task.Queue, Priority: task.Priority, Key: task.Key, Ordered: task.Ordered, Topic: task.Topic, Delay: task.Delay, Payload: payloadOf(&task)})
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && !p.dead {
		w.check.accepted(result.ID, task, era)
	}
}

// handle is the handler of every task. It behaves as the plan says.
func (p *process) handle(ctx context.Context, task holdfast.Task) error {
	w := p.world
	w.mu.Lock()
	plan := w.taskPlan(nameIn(task.Payload))
	if p.dead || w.ended || plan == nil {
		w.mu.Unlock()
		return context.Canceled
	}
	execution := w.check.executionStarted(p, ctx, task)
	w.mu.Unlock()
	err := p.work(ctx, task, plan)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.check.executionEnded(execution, err)
	if err != nil && plan.Panics && task.Failures == 0 && !errors.Is(err, context.Canceled) {
		panic(err)
	}
	return err
}

var errPlanned = errors.New("planned failure")

// work waits as long as the plan says and returns the planned result of this execution.
func (p *process) work(ctx context.Context, task holdfast.Task, plan *TaskPlan) error {
	if plan.Poison {
		p.world.mu.Lock()
		p.world.after(0, &step{what: "poison", run: func() { p.kill(-1, 300*time.Millisecond) }})
		p.world.mu.Unlock()
		<-p.gone
		return context.Canceled
	}
	takes, hangs := plan.Takes, task.Failures < plan.Hangs
	if hangs {
		takes = plan.HangFor
	}
	timer := time.NewTimer(takes)
	defer timer.Stop()
	ended := ctx.Done()
	if plan.Stubborn || hangs {
		ended = p.gone
	}
	if err := p.askTarget(ctx, task, plan); err != nil {
		p.whileStopped()
		return err
	}
	effects := p.beginEffects(ctx, task, plan, ended != p.gone, hangs)
	effects.save(takes, ended)
	var err error
	select {
	case <-timer.C:
		switch {
		case plan.Always, task.Failures < plan.Fails:
			err = errPlanned
		case task.Deferrals < plan.Defers:
			err = holdfast.Defer(200*time.Millisecond, errPlanned)
		default:
			err = effects.commit(ended)
		}
	case <-ended:
		err = context.Canceled
	}
	p.whileStopped()
	return err
}

// whileStopped waits while the process is stopped. It returns when the process continues or is dead.
func (p *process) whileStopped() {
	for {
		p.world.mu.Lock()
		resumed := p.resumed
		p.world.mu.Unlock()
		if resumed == nil {
			return
		}
		select {
		case <-resumed:
		case <-p.gone:
			return
		}
	}
}

// die marks the process as dead and releases its waiting handlers. The caller holds w.mu.
func (p *process) die() {
	if !p.dead {
		p.dead = true
		close(p.gone)
	}
}

// stoppedFor returns how long the process stays stopped.
func (p *process) stoppedFor() time.Duration { return max(0, time.Until(p.stoppedUntil)) }

// markTroubled notes that a fault may keep the process from working until the given time.
func (p *process) markTroubled(until time.Time) {
	if until.After(p.troubledUntil) {
		p.troubledUntil = until
	}
}

func (w *world) taskPlan(name string) *TaskPlan {
	for i := range w.plan.Tasks {
		if w.plan.Tasks[i].Name == name {
			return &w.plan.Tasks[i]
		}
		for j := range w.plan.Tasks[i].Children {
			if child := &w.plan.Tasks[i].Children[j]; child.Name == name {
				return child
			}
		}
	}
	return nil
}

// must reports an error that no fault can cause.
func (p *process) must(err error) {
	if err == nil {
		return
	}
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	p.world.check.fail("process %s: %v", p.name, err)
}

// mayFail accepts the two errors that faults can cause, and the process restarts. In the first, Run could not write all
// results. In the second, too many abandoned handlers still run, because each worker that lost its lease has left some.
func (p *process) mayFail(err error) {
	switch {
	case err == nil:
	case strings.Contains(err.Error(), "abandoned handlers still run"):
		w := p.world
		w.submit(func() {
			p.cancel()
			w.faults++
			w.after(time.Second, &step{what: "restart", run: func() {
				w.faults--
				w.start(p.index, w.life(p.index)+1)
			}})
		})
	case !unavailable(err):
		p.must(err)
	}
}

// logger returns a logger that writes to the journal. It takes the same random numbers whether or not the journal is
// kept. Otherwise keeping the journal would change the simulation.
func (p *process) logger() logrus.FieldLogger {
	log := logrus.New()
	log.SetLevel(logrus.DebugLevel)
	log.SetFormatter(journalFormatter{p})
	log.SetOutput(io.Discard)
	return log
}

type journalFormatter struct{ *process }

func (f journalFormatter) Format(entry *logrus.Entry) ([]byte, error) {
	fields := make([]string, 0, len(entry.Data))
	for key := range entry.Data {
		fields = append(fields, key)
	}
	if f.world.log.keep {
		slices.Sort(fields)
		for i, key := range fields {
			fields[i] = fmt.Sprintf("%s=%v", key, entry.Data[key])
		}
		f.world.log.logf(time.Since(f.world.began), "%s %s: %s %s", f.name, entry.Level, entry.Message, strings.Join(fields, " "))
	}
	return nil, nil
}

// idleDesk is a desk on which nothing is to be done. Janitors run the same duties as in production.
type idleDesk struct{}

func (idleDesk) RecordDeaths(context.Context, int) (int, error) { return 0, nil }

func (idleDesk) Announce(context.Context, store.NoticeFilter, func([]store.Notice) (holdfast.NewTask, error)) (store.Announced, error) {
	return store.Announced{}, nil
}
