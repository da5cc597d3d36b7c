package sim

import (
	"flag"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/internal/sim/patch"
)

var onlyMutants = flag.String("mutants", "", "only those whose names contain this")

// mutant is a mistake that somebody could make in the code that the simulator runs.
type mutant struct {
	name     string
	file     string
	old, new string
}

// mutants are mistakes that lose tasks, run them twice or charge them wrongly.
var mutants = []mutant{
	{"consumer acks a page before its manifest is confirmed", "consumer/page.go",
		"\terr := p.take(ctx)\n", "\tgo func() { _ = acks.finish(p.tags) }()\n\terr := p.take(ctx)\n"},
	{"consumer takes an unknown outcome for a confirm", "consumer/page.go",
		"if outcome != broker.Stored {", "if outcome == broker.Returned {"},
	{"consumer drops contended tickets", "consumer/page.go",
		"\t\t\tforeign[claim.Owner] = append(foreign[claim.Owner], ticket)\n", ""},
	{"consumer numbers another run's manifest with its own page", "consumer/page.go",
		"p.manifest(run, 0, tickets)", "p.manifest(run, p.number, tickets)"},
	{"consumer acks a page that it could not take", "consumer/page.go",
		"\tif err != nil {\n\t\ts.log.WithError(err).Debug(\"a page was not taken", "\tif err != nil {\n\t\t_ = acks.finish(p.tags)\n\t\ts.log.WithError(err).Debug(\"a page was not taken"},
	{"consumer acks up to the last finished delivery, not the first open one", "consumer/acks.go",
		"for n < len(a.queue) && a.queue[n].finished {",
		"for n < len(a.queue) && slices.ContainsFunc(a.queue[n:], func(e entry) bool { return e.finished }) {"},
	{"consumer moves its cursor before the result is committed", "consumer/execute.go",
		"\ts.results.add(result{", "\ts.pages.finish(j.page, 1)\n\ts.results.add(result{"},
	{"worker does not stop itself when its lease ends", "consumer/lease.go",
		"return l.renewed().Add(l.length - l.margin)", "return l.renewed().Add(10 * l.length)"},
	{"worker charges a task for its own drain", "consumer/execute.go",
		"errors.Is(ended, errStopped):\n\t\treturn holdfast.Interrupted(ended)", "errors.Is(ended, errStopped):\n\t\treturn holdfast.Returned(err)"},
	{"producer deletes receipts that are not confirmed", "producer/producer.go",
		"\t\t\tif outcome == broker.Stored {\n", "\t\t\tif outcome != broker.Returned {\n"},
	{"janitor deletes receipts that are not confirmed", "janitor/outbox.go",
		"done[i] = allConfirmed(confirmed, r.Tickets); done[i]", "done[i] = allConfirmed(confirmed, r.Tickets) || true; done[i]"},
	{"janitor marks tickets before they are published", "janitor/schedule.go",
		"stored[i] = published[d.Ticket]", "stored[i] = published[d.Ticket] || true"},
	{"janitor fences without a look at how long the store was away", "janitor/fence.go",
		"\tif !g.answered(time.Now(), asked) {\n\t\treturn nil, nil\n\t}\n\tfenced, err := j.o.Store.Fence(ctx, asked, j.o.FenceGrace, g.need)",
		"\tfenced, err := j.o.Store.Fence(ctx, asked, j.o.FenceGrace, 0)"},
	{"patrol acks a manifest before the new one is confirmed", "janitor/patrol.go",
		"\tif err := j.publishAll(ctx, letters); err != nil {\n\t\treturn err\n\t}\n", "\t_ = j.publishAll(ctx, letters)\n"},
	{"patrol drops the manifests of runs that are over", "janitor/patrol.go",
		"case h.manifest.Page > 0 && ", "case known && run.State != store.RunLive, h.manifest.Page > 0 && "},
	{"patrol does not take the tasks of gone runs back", "janitor/rescue.go",
		"\t\t\tgone = append(gone, ticket.Task)\n", ""},
	{"worker does not look through what it holds when the store has lost commits", "consumer/lease.go",
		"\ts.noteHistory(news.History)\n", ""},
	{"janitor fences although the store's clock has leapt", "janitor/fence.go",
		"leap.Abs() > min(maxGap, g.need/5)", "leap < 0 && leap > 0"},
	{"a retry keeps the attempt's number", "settle.go",
		"\tif move.To == Ready {\n\t\tmove.NextAttempt++", "\tif move.To == Ready {\n\t\tmove.NextAttempt += 0"},
	{"a crash is counted as a failure", "settle.go",
		"\t\tmove.Crashes++\n", "\t\tmove.Crashes++\n\t\tmove.Failures++\n"},
}

// mutantSeeds is within how many seeds each mutant must be caught.
const mutantSeeds = 2000

// TestMutants shows that the invariants have teeth.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		if !strings.Contains(m.name, *onlyMutants) {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			o := built(t, patch.Edit{File: m.file, Old: m.old, New: m.new})
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
