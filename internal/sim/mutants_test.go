package sim

import (
	"flag"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/internal/sim/patch"
	"github.com/holdfastq/holdfast/internal/slow"
)

var onlyMutants = flag.String("mutants", "", "only those whose names contain this")

// mutant is a mistake that somebody could make in the code that the simulator runs.
type mutant struct {
	name     string
	file     string
	old, new string
	also     []patch.Edit // where one guard alone is not missed
}

// noKick has a worker say that it has lost a sign only when it renews its lease anyway.
var noKick = patch.Edit{File: "consumer/lease.go", Old: "\t\tcase <-s.present.Changed():\n", New: ""}

// mutants are mistakes that lose tasks, run them twice, charge them wrongly, or take the living for dead. Of the guards of
// those who fence before a lease is over some are missed only if another one is weak too. The rule of crowds is not among
// them: with both signs asked for and time to contradict nobody here falls without it, and it stands for what this
// world does not have, a fault of the network between many machines. janitor's TestACrowdIsLeftToItsLeases holds it.
var mutants = []mutant{
	{"consumer acks a page before its manifest is confirmed", "consumer/page.go",
		"\terr := p.take(ctx)\n", "\tgo func() { _ = acks.finish(p.tags) }()\n\terr := p.take(ctx)\n", nil},
	{"consumer takes an unknown outcome for a confirm", "consumer/page.go",
		"if outcome != broker.Stored {", "if outcome == broker.Returned {", nil},
	{"consumer drops contended tickets", "consumer/page.go",
		"\t\t\tforeign[claim.Owner] = append(foreign[claim.Owner], ticket)\n", "", nil},
	{"consumer numbers another run's manifest with its own page", "consumer/page.go",
		"p.manifest(run, 0, tickets)", "p.manifest(run, p.number, tickets)", nil},
	{"consumer acks a page that it could not take", "consumer/page.go",
		"\tif err != nil {\n\t\ts.log.WithError(err).Debug(\"a page was not taken", "\tif err != nil {\n\t\t_ = acks.finish(p.tags)\n\t\ts.log.WithError(err).Debug(\"a page was not taken", nil},
	{"consumer acks up to the last finished delivery, not the first open one", "consumer/acks.go",
		"for n < len(a.queue) && a.queue[n].finished {",
		"for n < len(a.queue) && slices.ContainsFunc(a.queue[n:], func(e entry) bool { return e.finished }) {", nil},
	{"consumer moves its cursor before the result is committed", "consumer/execute.go",
		"\ts.results.add(result{", "\ts.pages.finish(j.page, 1)\n\ts.results.add(result{", nil},
	{"worker does not stop itself when its lease ends", "consumer/lease.go",
		"return l.renewed().Add(l.length - l.margin)", "return l.renewed().Add(10 * l.length)", nil},
	{"worker charges a task for its own drain", "consumer/execute.go",
		"errors.Is(ended, errStopped):\n\t\treturn holdfast.Interrupted(ended)", "errors.Is(ended, errStopped):\n\t\treturn holdfast.Returned(err)", nil},
	{"producer deletes receipts that are not confirmed", "producer/publish.go",
		"\t\tif outcome != broker.Stored {\n", "\t\tif outcome == broker.Returned {\n", nil},
	{"worker forgets the tickets it has no room for", "consumer/page.go",
		"for part := range slices.Chunk(rest, message.MaxTickets) {", "for part := range slices.Chunk(rest[:0], message.MaxTickets) {", nil},
	{"worker passes tickets on and does not note it", "consumer/page.go",
		"if len(p.passed) == 0 {", "if true {", nil},
	{"producer publishes one lane at a time", "producer/publish.go",
		"confirmed, err := p.publish(ctx, q.lane, window)", "p.turn <- struct{}{}\n\t\tconfirmed, err := p.publish(ctx, q.lane, window)\n\t\t<-p.turn",
		[]patch.Edit{
			{File: "producer/publish.go", Old: "\tdischarging bool\n", New: "\tdischarging bool\n\tturn chan struct{}\n"},
			{File: "producer/producer.go", Old: "closing: make(chan struct{}),", New: "closing: make(chan struct{}), turn: make(chan struct{}, 1),"},
		}},
	{"janitor deletes receipts that are not confirmed", "janitor/outbox.go",
		"done[i] = allConfirmed(confirmed, r.Tickets)", "done[i] = allConfirmed(confirmed, r.Tickets) || true", nil},
	{"janitor lets all lanes wait for one that confirms nothing", "janitor/isolate.go",
		"|| !j.isolated.add(lane) {", "|| lane != \"\" {", []patch.Edit{ // then it would come back to it again and again, for a second each
			{File: "janitor/isolate.go", Old: "context.WithTimeout(ctx, isolateAfter)", New: "context.WithTimeout(ctx, 10*isolateAfter)"},
		}},
	{"janitor marks tickets before they are published", "janitor/schedule.go",
		"stored[i] = published[d.Ticket]", "stored[i] = published[d.Ticket] || true", nil},
	{"janitor fences without a look at how long the store was away", "janitor/fence.go",
		"\tif !long {\n\t\treturn nil\n\t}\n\tfenced, err := j.o.Store.Fence(ctx, asked, j.o.FenceGrace, g.need)",
		"\t_ = long\n\tfenced, err := j.o.Store.Fence(ctx, asked, j.o.FenceGrace, 0)", nil},
	{"patrol acks a manifest before the new one is confirmed", "janitor/patrol.go",
		"\tif err := j.publishAll(ctx, letters); err != nil {\n\t\treturn err\n\t}\n", "\t_ = j.publishAll(ctx, letters)\n", nil},
	{"patrol drops the manifests of runs that are over", "janitor/patrol.go",
		"case h.manifest.Page > 0 && ", "case known && run.State != store.RunLive, h.manifest.Page > 0 && ", nil},
	{"patrol does not take the tasks of gone runs back", "janitor/rescue.go",
		"\t\t\tgone = append(gone, ticket.Task)\n", "", nil},
	{"worker does not look through what it holds when the store has lost commits", "consumer/lease.go",
		"\ts.noteHistory(news.History)\n", "", nil},
	{"janitor leaves times that the store computed from a clock that was set back", "janitor/clock.go",
		"setBack, err := j.o.Store.CorrectTimes(ctx)", "setBack, err := false, ctx.Err()", nil},
	{"janitor fences although the store's clock has leapt", "janitor/fence.go",
		"leap.Abs() > min(maxGap, g.need/5)", "leap < 0 && leap > 0", nil},
	{"a retry keeps the attempt's number", "settle.go",
		"\tif move.To == Ready {\n\t\tmove.NextAttempt++", "\tif move.To == Ready {\n\t\tmove.NextAttempt += 0", nil},
	{"a worker claims into executors that are not free", "consumer/room.go",
		"\tif r.held-r.gathering > r.limit {\n\t\treturn store.IntoBuffer\n\t}\n", "", nil},
	{"a crash charges what waited for an executor", "settle.go",
		"if t.Buffered { // perhaps it never started", "if false {", nil},
	{"a worker claims into its buffer what came back", "consumer/room.go",
		"\t\tr.unreserve(given-n, store.IntoExecutors)\n\t\tr.change(n - given)\n\t\treturn store.IntoExecutors\n",
		"\t\tr.unreserve(given, store.IntoExecutors)\n\t\tr.change(n - given)\n\t\treturn store.IntoBuffer\n", nil},
	{"a crash is counted as a failure", "settle.go",
		"\t\tmove.Crashes++\n", "\t\tmove.Crashes++\n\t\tmove.Failures++\n", nil},
	{"watcher fences without a word of the broker", "presence/watcher.go",
		"shown, err := w.o.Broker.Shown(probe, w.o.Sign(a.Run))", "shown, err := false, probe.Err()", nil},
	{"watcher fences without a word of the store", "internal/sim/simstore/presence.go",
		"return s.holder(run.ID) == nil && !s.renews(run.ID)", "return true", []patch.Edit{ // which makes a crowd of all who live
			{File: "presence/watcher.go", Old: "\tif !crowd {\n", New: "\tif len(known) >= 0 {\n"},
		}},
	{"watcher does not ask for the session that carries a worker's renewals", "internal/sim/simstore/presence.go",
		"return s.holder(run.ID) == nil && !s.renews(run.ID)", "return s.holder(run.ID) == nil", nil},
	{"janitor does not ask for the presence of a worker whose process it does not find", "presence/neighbors.go",
		"absences, err := n.o.Store.Absent(ctx)", "var absences []Absence\n\tfor _, l := range listed {\n\t\tabsences = append(absences, Absence{Run: l.Run})\n\t}",
		[]patch.Edit{
			{File: "presence/neighbors.go", Old: "if err != nil || shown {", New: "if err != nil || shown && false {"},
			{File: "internal/sim/simstore/presence.go", Old: "!c.store.absent(run) || !run.RenewedAt.Equal(a.RenewedAt)", New: "run.State != store.RunLive"},
		}},
	{"watcher does not wait for a renewal, and the worker sends none at once", "presence/watcher.go",
		"if before := known.denied; shown || !before || !settled {", "if shown {", []patch.Edit{noKick}},
	{"worker does not say at once that it has lost a sign, nor shows it again at once", noKick.File, noKick.Old, noKick.New, []patch.Edit{
		{File: "presence/holder.go", Old: "firstShow = 50 * time.Millisecond", New: "firstShow = time.Second"},
	}},
	{"watcher fences although its own signs were lost a moment ago", "presence/quiet.go",
		"there(q.watch) && there(q.witness) && time.Since(q.since) >= need", "need > 0", nil},
}

// mutantSeeds is within how many seeds each mutant must be caught.
const mutantSeeds = 2000

// TestMutants shows that the invariants have teeth.
func TestMutants(t *testing.T) {
	slow.Skip(t)
	for _, m := range mutants {
		if !strings.Contains(m.name, *onlyMutants) {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			o := built(t, append(m.also, patch.Edit{File: m.file, Old: m.old, New: m.new})...)
			o.Runs, o.StopFirst = mutantSeeds, true
			for _, s := range outcomes(t, o) {
				if s.Violation != "" {
					t.Logf("caught by seed %d: %s", s.Seed, s.Violation)
					return
				}
			}
			t.Errorf("not caught within %d seeds", mutantSeeds)
		})
	}
}
