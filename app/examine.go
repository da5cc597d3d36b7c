package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/store"
)

const (
	// examinePatience is how long a doctor waits for RabbitMQ.
	examinePatience = 3 * time.Second
	// clocksApart is a difference of clocks that NTP would never leave.
	clocksApart = 2 * time.Second
)

// Examination is what a doctor found.
type Examination struct {
	Findings    []holdfast.Finding
	Unreachable bool // a server did not answer, so that some checks could not be made
}

// Worst is the worst grade among the findings.
func (e Examination) Worst() holdfast.Grade {
	order := []holdfast.Grade{holdfast.GradeOK, holdfast.GradeSkipped, holdfast.GradeWarning, holdfast.GradeFailed}
	worst := 0
	for _, f := range e.Findings {
		worst = max(worst, slices.Index(order, f.Grade))
	}
	return order[worst]
}

// Examine makes every check of a system there is, in the order in which one builds on another: the store, the
// broker, and whether work gets done. It changes nothing. Whatever is wrong is in the answer.
func Examine(ctx context.Context, cfg configs.Config, log logrus.FieldLogger) Examination {
	e := &examiner{Backend: &Backend{Config: cfg, Log: log}}
	chosen, err := choose(cfg, log)
	if err == nil {
		err = chosen.mismatch
	}
	if err != nil {
		e.failed("configuration", err, "")
		return e.Examination
	}
	e.ok("configuration", "it is valid: %s", strings.Join(append([]string{configs.RedactURL(cfg.Database.URL)}, redacted(cfg.AMQP.URLs)...), ", "))
	e.examineStore(ctx)
	if e.Store != nil {
		defer func() { _ = e.Store.Close() }() // it was only read
	}
	if e.absent {
		return e.Examination
	}
	e.examineBroker(ctx, chosen)
	if e.Broker != nil {
		defer func() { _ = e.Broker.Close() }()
	}
	if e.migrated {
		e.examineWork(ctx)
	}
	return e.Examination
}

func redacted(urls []string) []string {
	hidden := make([]string, len(urls))
	for i, address := range urls {
		hidden[i] = configs.RedactURL(address)
	}
	return hidden
}

// examiner is an examination under way.
type examiner struct {
	*Backend
	Examination
	absent   bool // there is no file yet
	migrated bool // the schema is there
	answers  bool // the broker does
}

func (e *examiner) add(f ...holdfast.Finding) { e.Findings = append(e.Findings, f...) }

func (e *examiner) ok(check, detail string, args ...any) {
	e.add(holdfast.Finding{Check: check, Grade: holdfast.GradeOK, Detail: fmt.Sprintf(detail, args...)})
}

func (e *examiner) skipped(check, why string) {
	e.add(holdfast.Finding{Check: check, Grade: holdfast.GradeSkipped, Detail: why})
}

// failed tells an error. Many of ours end with what to do, behind a semicolon; remedy is for the others.
func (e *examiner) failed(check string, err error, remedy string) {
	e.Unreachable = e.Unreachable || errors.Is(err, holdfast.ErrUnavailable)
	detail := strings.TrimPrefix(err.Error(), holdfast.ErrInvalid.Error()+": ")
	if before, after, ok := strings.Cut(detail, "; "); ok {
		detail, remedy = before, after
	}
	if remedy == "" {
		remedy = "try again, and see docs/operations.md if it stays"
	}
	e.add(holdfast.Finding{Check: check, Grade: holdfast.GradeFailed, Detail: detail, Remedy: remedy})
}

func (e *examiner) examineStore(ctx context.Context) {
	b, err := openStore(ctx, e.Config, e.Log, false)
	switch {
	case errors.Is(err, holdfast.ErrNotFound):
		e.absent = true
		e.add(holdfast.Finding{Check: "store", Grade: holdfast.GradeWarning, Detail: err.Error(), Remedy: "start: holdfast serve"})
		return
	case err != nil:
		e.failed("store", err, "")
		return
	}
	e.Backend = b
	e.examineClock(ctx)
	if examinable, ok := b.Store.(store.Examiner); ok {
		findings, err := examinable.Settings(ctx)
		if err != nil {
			e.failed("store settings", err, "")
		}
		e.add(findings...)
	}
	e.examineSchema(ctx)
}

func (e *examiner) examineClock(ctx context.Context) {
	asked := time.Now()
	now, err := e.Store.Now(ctx)
	took := time.Since(asked)
	if err != nil {
		e.failed("store", err, "")
		return
	}
	e.ok("store", "it answers within %s", took.Round(time.Millisecond))
	if apart := now.Sub(asked.Add(took / 2)).Abs(); apart > clocksApart+took/2 {
		e.add(holdfast.Finding{Check: "clock", Grade: holdfast.GradeWarning,
			Detail: fmt.Sprintf("the clocks of the store and of this machine differ by %s", apart.Round(time.Millisecond)),
			Remedy: "let NTP set both: leases and delays go by the store's clock alone, but a moment that a program names, and every log, goes by its machine's"})
		return
	}
	e.ok("clock", "that of the store and that of this machine agree")
}

func (e *examiner) examineSchema(ctx context.Context) {
	err := e.Store.CheckSchema(ctx)
	if err != nil {
		e.failed("schema", err, "")
		return
	}
	incarnation, err := e.Store.Incarnation(ctx)
	if err != nil {
		e.failed("schema", err, "")
		return
	}
	migrations, err := e.Store.MigrationStatus(ctx)
	if err != nil || len(migrations) == 0 {
		e.failed("schema", errors.Join(err, errors.New("its version is not known")), "holdfast migrate status")
		return
	}
	e.ok("schema", "version %d, as this build needs it", migrations[len(migrations)-1].Version)
	e.migrated = true
	e.Topology = broker.NewTopology(e.Config.AMQP.Prefix, e.Config.AMQP.Shards, incarnation)
}

func (e *examiner) examineBroker(ctx context.Context, chosen choice) {
	if slices.Equal(e.Config.AMQP.URLs, []string{configs.EmbeddedBroker}) {
		e.examineServed(ctx)
		return
	}
	var err error
	if e.Broker, err = chosen.broker(ctx); err == nil {
		err = e.Ping(ctx, examinePatience)
	}
	if err != nil {
		e.failed("broker", err, "check that it runs at "+strings.Join(redacted(e.Config.AMQP.URLs), ", ")+" and that nothing in between drops packets")
		return
	}
	e.answers = true
	e.ok("broker", "it answers")
	examinable, ok := e.Broker.(broker.Examiner)
	if !ok {
		return
	}
	findings, err := examinable.Server(ctx)
	if err != nil {
		e.failed("broker", err, "")
	}
	e.add(findings...)
	if !e.migrated {
		e.skipped("topology", "its queues are named after what is in the store")
		return
	}
	lanes, err := e.Store.LaneNames(ctx)
	if err == nil {
		findings, err = e.CompareTopology(ctx, lanes)
	}
	if err != nil {
		e.failed("topology", err, "")
		return
	}
	e.add(e.summed(findings)...)
}

// CompareTopology compares what is in the broker with what should be: one finding for each queue, named after
// it, and the last one for the marker. It changes nothing. An ErrInvalid if the broker cannot compare.
func (b *Backend) CompareTopology(ctx context.Context, lanes []string) ([]holdfast.Finding, error) {
	examinable, ok := b.Broker.(broker.Examiner)
	if !ok {
		return nil, fmt.Errorf("%w: this broker does not tell what is in it", holdfast.ErrInvalid)
	}
	return examinable.Compare(ctx, append(b.Topology.Queues(lanes), b.Topology.MarkerObject()))
}

// summed makes one finding of what is missing, and of what is as it should be.
func (e *examiner) summed(objects []holdfast.Finding) []holdfast.Finding {
	queues, marker := objects[:len(objects)-1], objects[len(objects)-1]
	var found []holdfast.Finding
	var missing []string
	for _, f := range queues {
		switch {
		case f.Grade == holdfast.GradeOK:
		case f.Detail == "missing":
			missing = append(missing, f.Check)
		default:
			f.Check, f.Detail = "topology", f.Check+": "+f.Detail
			found = append(found, f)
		}
	}
	if len(missing) > 0 {
		found = append(found, holdfast.Finding{Check: "topology", Grade: holdfast.GradeFailed,
			Detail: fmt.Sprintf("%d of %d queues are missing: %s", len(missing), len(queues), strings.Join(missing, ", ")),
			Remedy: "start a janitor (holdfast serve), or: holdfast topology apply"})
	}
	if len(found) == 0 {
		found = append(found, holdfast.Finding{Check: "topology", Grade: holdfast.GradeOK, Detail: counted(int64(len(queues)), "queue is as it should be", "queues are as they should be")})
	}
	marker.Check = "marker"
	if marker.Grade == holdfast.GradeFailed && marker.Detail == "missing" {
		marker.Detail = "missing: this broker was wiped, or never had the queues of this store"
		marker.Remedy = "start a janitor (holdfast serve), or: holdfast topology apply; every waiting task gets a new ticket"
	}
	return append(found, marker)
}

// examineServed is about the embedded broker.
func (e *examiner) examineServed(ctx context.Context) {
	if e.file == nil {
		return
	}
	if err := e.file.served(); err != nil {
		e.add(holdfast.Finding{Check: "broker", Grade: holdfast.GradeWarning, Detail: "it lives inside the process that serves the file, and none does now", Remedy: "start: holdfast serve"})
		return
	}
	e.answers = true
	e.ok("broker", "inside the process that serves the file, which nobody else can ask")
}
