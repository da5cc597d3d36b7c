package storetest_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

func (w *pair) drained(t *rapid.T) {
	lane, off := lanes.Draw(t, "lane"), rapid.SampledFrom([]time.Duration{-time.Hour, 0, time.Hour}).Draw(t, "off")
	sent := rapid.IntRange(-1, len(w.sent)-1).Draw(t, "sentinel")
	w.ask("drained "+lane, func(h *half, i int) (string, error) {
		s := message.Sentinel{Lane: lane, At: h.now.Add(off)}
		if sent >= 0 {
			s = w.sent[sent][i]
		}
		return "", h.Drained(w.ctx, s)
	})
}

func (w *pair) sentinelsDue(t *rapid.T) {
	interval, lost := w.short.Draw(t, "interval"), w.short.Draw(t, "lost")
	found := make(map[string]*[2]message.Sentinel)
	w.ask("sentinels due", func(h *half, i int) (string, error) {
		sentinels, err := h.SentinelsDue(w.ctx, interval, lost)
		names := []string{}
		for _, s := range sentinels {
			names = append(names, s.Lane+" "+h.when(s.At))
			if found[s.Lane] == nil {
				found[s.Lane] = new([2]message.Sentinel)
			}
			found[s.Lane][i] = s
		}
		slices.Sort(names)
		return fmt.Sprint(names), err
	})
	for _, both := range found {
		w.sent = append(w.sent, *both)
	}
	slices.SortStableFunc(w.sent, func(a, b [2]message.Sentinel) int {
		return cmp.Or(cmp.Compare(a[0].Lane, b[0].Lane), a[0].At.Compare(b[0].At))
	})
}

func (w *pair) fence(t *rapid.T) {
	grace, settle, age := w.waits.Draw(t, "grace"), time.Duration(0), time.Duration(0)
	if w.exact {
		settle = w.waits.Draw(t, "settle")
		age = rapid.SampledFrom([]time.Duration{0, 0, 2*time.Second - time.Microsecond, 2 * time.Second}).Draw(t, "asked ago")
	}
	w.ask("fence", func(h *half, _ int) (string, error) {
		fenced, err := h.Fence(w.ctx, h.now.Add(-age), grace, settle)
		said := ""
		for _, run := range fenced {
			said += h.sayRun(run)
		}
		return said, err
	})
}

func (w *pair) abandoned(t *rapid.T) {
	run, limit := w.whichRun(t), limits.Draw(t, "limit")
	every := rapid.Bool().Draw(t, "any run")
	w.ask("abandoned", func(h *half, _ int) (string, error) {
		of := h.runID(run)
		if every {
			of = 0
		}
		tasks, err := h.Abandoned(w.ctx, of, limit)
		return h.sayTasks(tasks), err
	})
}

func (w *pair) dispatchDue(t *rapid.T) {
	mask := shares.Draw(t, "published") | shares.Draw(t, "published too")
	limit, meanwhile := 1000, w.meanwhile(t)
	if w.exact {
		limit = rapid.SampledFrom([]int{0, 1, 2, 5, 1000}).Draw(t, "limit")
	}
	w.ask("dispatch due", func(h *half, _ int) (string, error) {
		said := []string{}
		result, err := h.DispatchDue(w.ctx, store.Lanes{}, limit, func(_ context.Context, due []store.Due) []bool {
			published := make([]bool, len(due))
			for i, d := range due {
				published[i] = mask>>(slices.Index(h.tasks, d.Task)%64)&1 == 1
				said = append(said, fmt.Sprintf("%s/%d %s again=%t", h.say(d.Task), d.Attempt, d.Lane, d.Again))
				if h.exact {
					said = append(said, d.Late.String())
				}
			}
			said = append(said, meanwhile(h, due))
			return published
		})
		if !w.exact {
			slices.Sort(said)
		}
		next := "long"
		switch {
		case w.exact:
			next = result.Next.String()
		case result.Next <= time.Second:
			next = result.Next.String()
		case result.Next < 4*time.Second:
			next = "seconds"
		case result.Next > time.Hour:
			next = "too long"
		}
		return fmt.Sprint(said, result.Given, result.Marked, next), err
	})
}

func (w *pair) dispatchReceipts(t *rapid.T) {
	mask := shares.Draw(t, "published") | shares.Draw(t, "published too")
	w.ask("dispatch receipts", func(h *half, _ int) (string, error) {
		said := []string{}
		n, err := h.DispatchReceipts(w.ctx, store.Lanes{}, 1000, func(_ context.Context, receipts []store.Receipt) []bool {
			published := make([]bool, len(receipts))
			for i, r := range receipts {
				index := slices.Index(h.receipts, r.ID)
				published[i] = mask>>(index%64)&1 == 1
				said = append(said, fmt.Sprintf("%d %s %s", index, r.Lane, h.sayTickets(r.Tickets)))
			}
			return published
		})
		slices.Sort(said)
		return fmt.Sprint(said, n), err
	})
}

func (w *pair) unticket(t *rapid.T) {
	tickets := w.drawTickets(t)
	w.ask("unticket", func(h *half, _ int) (string, error) {
		n, err := h.Unticket(w.ctx, h.tickets(tickets))
		return fmt.Sprint(n), err
	})
}

func (w *pair) unticketLane(t *rapid.T) {
	lane := lanes.Draw(t, "lane")
	w.ask("unticket lane", func(h *half, _ int) (string, error) {
		n, err := h.UnticketLane(w.ctx, lane)
		return fmt.Sprint(n), err
	})
}

func (w *pair) unticketLost(t *rapid.T) {
	slack := w.slack
	if slack == 0 {
		slack = w.short.Draw(t, "slack")
	}
	w.ask(fmt.Sprint("unticket lost ", slack), func(h *half, _ int) (string, error) {
		n, _, err := h.UnticketLost(w.ctx, slack)
		return fmt.Sprint(n), err
	})
}

func (w *pair) turn(t *rapid.T) {
	duty, every := rapid.SampledFrom([]string{"sweep", "prune"}).Draw(t, "duty"), w.short.Draw(t, "every")
	w.ask("turn", func(h *half, _ int) (string, error) {
		mine, err := h.Turn(w.ctx, duty, every)
		return fmt.Sprint(mine), err
	})
}

func (w *pair) prune(t *rapid.T) {
	ages := store.PruneAges{Done: w.ages.Draw(t, "done"), Cancelled: w.ages.Draw(t, "cancelled"), Archived: w.ages.Draw(t, "archived"), Runs: w.ages.Draw(t, "runs")}
	limit := rapid.SampledFrom([]int{0, 1000, 1000}).Draw(t, "limit")
	w.ask(fmt.Sprint("prune ", ages, limit), func(h *half, _ int) (string, error) {
		n, err := h.Prune(w.ctx, ages, limit)
		return fmt.Sprint(n), err
	})
}

func (w *pair) filter(t *rapid.T) (f store.Filter, before int) {
	f = store.Filter{
		States: rapid.SliceOfN(rapid.SampledFrom(append(holdfast.States(), "odd")), 0, 2).Draw(t, "states"),
		Type:   rapid.SampledFrom([]string{"", "", "one", "ONE"}).Draw(t, "type"),
		Lane:   rapid.SampledFrom([]string{"", "", "a", "zzz"}).Draw(t, "lane"),
		Error:  rapid.SampledFrom([]string{"", "", "", "failed", "Ärger", "%", "_", "l\x00", "\\ '"}).Draw(t, "error"),
		Limit:  rapid.SampledFrom([]int{0, 1, 3, -1, 1000}).Draw(t, "limit"),
		Since:  rapid.SampledFrom([]time.Time{{}, {}, {}, time.UnixMicro(1), time.UnixMicro(1 << 52)}).Draw(t, "since"),
		Until:  rapid.SampledFrom([]time.Time{{}, {}, {}, time.UnixMicro(1), time.UnixMicro(1 << 52)}).Draw(t, "until"),
	}
	return f, rapid.IntRange(-3, len(w.both[0].tasks)-1).Draw(t, "before")
}

func (w *pair) list(t *rapid.T) {
	f, before := w.filter(t)
	w.ask(fmt.Sprintf("list %+v", f), func(h *half, _ int) (string, error) {
		if f.Before = 0; before >= 0 {
			f.Before = h.id(before)
		}
		tasks, err := h.List(w.ctx, f)
		return h.sayTasks(tasks), err
	})
}

func (w *pair) count(t *rapid.T) {
	f, before := w.filter(t)
	w.ask(fmt.Sprintf("count %+v", f), func(h *half, _ int) (string, error) {
		if f.Before = 0; before >= 0 {
			f.Before = h.id(before)
		}
		counts, err := h.Count(w.ctx, f)
		return fmt.Sprint(counts), err
	})
}
