package storetest_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

func (p *pair) drained(t *rapid.T) {
	queue, off := queues.Draw(t, "queue"), rapid.SampledFrom([]time.Duration{-time.Hour, 0, time.Hour}).Draw(t, "off")
	sent := rapid.IntRange(-1, len(p.sent)-1).Draw(t, "sentinel")
	p.check("drained "+queue, func(h *handle, i int) (string, error) {
		s := message.Sentinel{Queue: queue, At: h.now.Add(off)}
		if sent >= 0 {
			s = p.sent[sent][i]
		}
		return "", h.Drained(p.ctx, s)
	})
}

func (p *pair) sentinelsDue(t *rapid.T) {
	interval, lost := p.short.Draw(t, "interval"), p.short.Draw(t, "lost")
	found := make(map[string]*[2]message.Sentinel)
	p.check("sentinels due", func(h *handle, i int) (string, error) {
		sentinels, err := h.SentinelsDue(p.ctx, interval, lost)
		names := []string{}
		for _, s := range sentinels {
			names = append(names, s.Queue+" "+h.formatTime(s.At))
			if found[s.Queue] == nil {
				found[s.Queue] = new([2]message.Sentinel)
			}
			found[s.Queue][i] = s
		}
		slices.Sort(names)
		return fmt.Sprint(names), err
	})
	for _, both := range found {
		p.sent = append(p.sent, *both)
	}
	slices.SortStableFunc(p.sent, func(a, b [2]message.Sentinel) int {
		return cmp.Or(cmp.Compare(a[0].Queue, b[0].Queue), a[0].At.Compare(b[0].At))
	})
}

func (p *pair) fence(t *rapid.T) {
	grace, settle, age := p.waits.Draw(t, "grace"), time.Duration(0), time.Duration(0)
	if p.exact {
		settle = p.waits.Draw(t, "settle")
		age = rapid.SampledFrom([]time.Duration{0, 0, 2*time.Second - time.Microsecond, 2 * time.Second}).Draw(t, "called ago")
	}
	p.check("fence", func(h *handle, _ int) (string, error) {
		fenced, err := h.Fence(p.ctx, h.now.Add(-age), grace, settle)
		text := ""
		for _, worker := range fenced {
			text += h.workerName(worker)
		}
		return text, err
	})
}

func (p *pair) abandoned(t *rapid.T) {
	worker, limit := p.drawWorker(t), limits.Draw(t, "limit")
	anyWorker := rapid.Bool().Draw(t, "any worker")
	p.check("abandoned", func(h *handle, _ int) (string, error) {
		id := h.workerID(worker)
		if anyWorker {
			id = 0
		}
		tasks, err := h.Abandoned(p.ctx, id, limit)
		return h.formatTasks(tasks), err
	})
}

func (p *pair) dispatchDue(t *rapid.T) {
	mask := shares.Draw(t, "published") | shares.Draw(t, "published too")
	limit, meanwhile := 1000, p.meanwhile(t)
	if p.exact {
		limit = rapid.SampledFrom([]int{0, 1, 2, 5, 1000}).Draw(t, "limit")
	}
	p.check("dispatch due", func(h *handle, _ int) (string, error) {
		lines := []string{}
		result, err := h.DispatchDue(p.ctx, store.Queues{}, limit, func(_ context.Context, due []store.Due) []bool {
			published := make([]bool, len(due))
			for i, d := range due {
				published[i] = mask>>(slices.Index(h.tasks, d.Task)%64)&1 == 1
				lines = append(lines, fmt.Sprintf("%s/%d %s requeued=%t", h.taskName(d.Task), d.Attempt, d.Queue, d.Requeued))
				if h.exact {
					lines = append(lines, d.Late.String())
				}
			}
			lines = append(lines, meanwhile(h, due))
			return published
		})
		if !p.exact {
			slices.Sort(lines)
		}
		next := "long"
		switch {
		case p.exact:
			next = result.Next.String()
		case result.Next <= time.Second:
			next = result.Next.String()
		case result.Next < 4*time.Second:
			next = "seconds"
		case result.Next > time.Hour:
			next = "too long"
		}
		return fmt.Sprint(lines, result.Given, result.Marked, next), err
	})
}

func (p *pair) dispatchOutbox(t *rapid.T) {
	mask := shares.Draw(t, "published") | shares.Draw(t, "published too")
	p.check("dispatch outbox", func(h *handle, _ int) (string, error) {
		lines := []string{}
		n, err := h.DispatchOutbox(p.ctx, store.Queues{}, 1000, func(_ context.Context, entries []store.OutboxEntry) []bool {
			published := make([]bool, len(entries))
			for i, entry := range entries {
				index := slices.Index(h.entries, entry.ID)
				published[i] = mask>>(index%64)&1 == 1
				lines = append(lines, fmt.Sprintf("%d %s %s", index, entry.Queue, h.formatTickets(entry.Tickets)))
			}
			return published
		})
		slices.Sort(lines)
		return fmt.Sprint(lines, n), err
	})
}

func (p *pair) unticket(t *rapid.T) {
	tickets := p.drawTickets(t)
	p.check("unticket", func(h *handle, _ int) (string, error) {
		n, err := h.Unticket(p.ctx, h.tickets(tickets))
		return fmt.Sprint(n), err
	})
}

func (p *pair) unticketQueue(t *rapid.T) {
	queue := queues.Draw(t, "queue")
	p.check("unticket queue", func(h *handle, _ int) (string, error) {
		n, err := h.UnticketQueue(p.ctx, queue)
		return fmt.Sprint(n), err
	})
}

func (p *pair) unticketLost(t *rapid.T) {
	slack := p.slack
	if slack == 0 {
		slack = p.short.Draw(t, "slack")
	}
	p.check(fmt.Sprint("unticket lost ", slack), func(h *handle, _ int) (string, error) {
		n, _, err := h.UnticketLost(p.ctx, slack)
		return fmt.Sprint(n), err
	})
}

func (p *pair) keepSentinels(t *rapid.T) {
	slack := p.slack
	if slack == 0 {
		slack = p.short.Draw(t, "slack")
	}
	p.check(fmt.Sprint("keep sentinels ", slack), func(h *handle, _ int) (string, error) {
		return "", h.KeepSentinels(p.ctx, slack)
	})
}

func (p *pair) correctTimes(*rapid.T) {
	p.check("correct times", func(h *handle, _ int) (string, error) {
		setBack, err := h.CorrectTimes(p.ctx)
		return fmt.Sprint(setBack), err
	})
}

func (p *pair) turn(t *rapid.T) {
	duty, every := rapid.SampledFrom([]string{"sweep", "prune"}).Draw(t, "duty"), p.short.Draw(t, "every")
	p.check("turn", func(h *handle, _ int) (string, error) {
		mine, err := h.Turn(p.ctx, duty, every)
		return fmt.Sprint(mine), err
	})
}

func (p *pair) prune(t *rapid.T) {
	ages := store.PruneAges{
		Done: p.ages.Draw(t, "done"), Cancelled: p.ages.Draw(t, "cancelled"), Archived: p.ages.Draw(t, "archived"), Workers: p.ages.Draw(t, "workers"),
	}
	limit := rapid.SampledFrom([]int{0, 1000, 1000}).Draw(t, "limit")
	p.check(fmt.Sprint("prune ", ages, limit), func(h *handle, _ int) (string, error) {
		n, err := h.Prune(p.ctx, ages, limit)
		p.pruned = true
		return fmt.Sprint(n), err
	})
}

func (p *pair) filter(t *rapid.T) (f store.Filter, before int) {
	f = store.Filter{
		States:     rapid.SliceOfN(rapid.SampledFrom(append(holdfast.States(), "odd")), 0, 2).Draw(t, "states"),
		Type:       rapid.SampledFrom([]string{"", "", "one", "ONE"}).Draw(t, "type"),
		Queue:      rapid.SampledFrom([]string{"", "", "a", "zzz"}).Draw(t, "queue"),
		Priorities: rapid.SampledFrom([][]holdfast.Priority{nil, nil, nil, {holdfast.PriorityHigh}, {holdfast.PriorityNormal}, {holdfast.PriorityLow, holdfast.PriorityNormal}}).Draw(t, "priorities"),
		Error:      rapid.SampledFrom([]string{"", "", "", "failed", "Ärger", "%", "_", "l\x00", "\\ '"}).Draw(t, "error"),
		Limit:      rapid.SampledFrom([]int{0, 1, 3, -1, 1000}).Draw(t, "limit"),
		Tags:       rapid.SampledFrom([][]string{nil, nil, nil, {"a"}, {"b", "a"}, {"\x00"}}).Draw(t, "tags"),
		Since:      rapid.SampledFrom([]time.Time{{}, {}, {}, time.UnixMicro(1), time.UnixMicro(1 << 52)}).Draw(t, "since"),
		Until:      rapid.SampledFrom([]time.Time{{}, {}, {}, time.UnixMicro(1), time.UnixMicro(1 << 52)}).Draw(t, "until"),
	}
	return f, rapid.IntRange(-3, len(p.both[0].tasks)-1).Draw(t, "before")
}

func (p *pair) list(t *rapid.T) {
	f, before := p.filter(t)
	p.check(fmt.Sprintf("list %+v", f), func(h *handle, _ int) (string, error) {
		if f.Before = 0; before >= 0 {
			f.Before = h.id(before)
		}
		page, err := h.List(p.ctx, f)
		return h.formatTasks(page.Tasks), err
	})
}

func (p *pair) count(t *rapid.T) {
	f, before := p.filter(t)
	p.check(fmt.Sprintf("count %+v", f), func(h *handle, _ int) (string, error) {
		if f.Before = 0; before >= 0 {
			f.Before = h.id(before)
		}
		counts, err := h.Count(p.ctx, f)
		return fmt.Sprint(counts.By), err
	})
}
