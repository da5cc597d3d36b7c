package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/contain"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// screenTest is a screen without a terminal and without a store.
type screenTest struct {
	*topModel
	t     *testing.T
	wants []topWant // of the readings that have begun
	at    time.Time
}

func newScreenTest(t *testing.T, columns, rows int) *screenTest {
	s := &screenTest{t: t, at: time.Date(2030, 1, 31, 9, 0, 0, 0, time.UTC)}
	s.topModel = newTopModel(topOptions{
		every: time.Second,
		begin: func(want topWant) (func() topReading, context.CancelFunc) {
			s.wants = append(s.wants, want)
			return func() topReading { panic("no test reads") }, func() {}
		},
		page: func(task *topTask, _ int, unfolded bool) []string {
			return []string{fmt.Sprintf("page of task %s, unfolded %t", task.ID, unfolded)}
		},
		message: func(err error) string { return err.Error() },
	})
	s.Init()
	s.Update(tea.WindowSizeMsg{Width: columns, Height: rows})
	return s
}

// reads delivers a reading, as the answer to the newest one that has begun.
func (s *screenTest) reads(r topReading) {
	s.at = s.at.Add(time.Second)
	r.seq, r.at = s.seq, s.at
	if r.err == nil {
		if r.sample.states == nil {
			r.sample = sampleOf(r.at, nil)
		}
		r.sample.at, r.head.states = r.at, r.sample.states
	}
	s.Update(r)
}

// press sends keys: single characters, or the names of special keys.
func (s *screenTest) press(keys ...string) {
	codes := map[string]rune{
		"enter": tea.KeyEnter, "esc": tea.KeyEscape, "up": tea.KeyUp, "down": tea.KeyDown, "end": tea.KeyEnd, "home": tea.KeyHome,
		"pgdown": tea.KeyPgDown, "pgup": tea.KeyPgUp, "backspace": tea.KeyBackspace,
	}
	for _, key := range keys {
		if code, ok := codes[key]; ok {
			s.Update(tea.KeyPressMsg{Code: code})
			continue
		}
		for _, r := range key {
			s.Update(tea.KeyPressMsg{Code: r, Text: string(r)})
		}
	}
}

// lines returns the screen, and checks that it fits.
func (s *screenTest) lines() []string {
	s.t.Helper()
	lines := strings.Split(text.StripEscape(s.View().Content), "\n")
	if len(lines) > s.height {
		s.t.Errorf("%d lines on a screen of %d", len(lines), s.height)
	}
	for i, line := range lines {
		if textWidth(line) > s.width {
			s.t.Errorf("a line has %d columns on a screen of %d: %q", textWidth(line), s.width, line)
		}
		lines[i] = strings.TrimRight(line, " ")
	}
	return lines
}

// has checks that the screen has all texts.
func (s *screenTest) has(texts ...string) {
	s.t.Helper()
	all := strings.Join(s.lines(), "\n")
	for _, want := range texts {
		if !strings.Contains(all, want) {
			s.t.Errorf("the screen does not show %q:\n%s", want, all)
		}
	}
}

// first returns the first words of the rows on the screen, the selected one with a mark.
func (s *screenTest) first() string {
	s.t.Helper()
	var names []string
	for _, line := range s.lines()[6 : 6+min(s.rows(), len(s.table.rows))] {
		name := strings.Fields(strings.TrimPrefix(line, "> "))[0]
		if strings.HasPrefix(line, ">") {
			name = ">" + name
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// queuesOf returns a reading of queues with numbers of ready tasks.
func queuesOf(ready ...int64) (r topReading) {
	for i, n := range ready {
		r.queues = append(r.queues, surface.Queue{Kind: surface.KindQueue, Queue: string(rune('a'+i)) + "-queue", Priority: "normal",
			QueueCounts: &surface.QueueCounts{Ready: n}})
	}
	return r
}

// The blocked tasks of a queue fit a screen of 80 columns, beside large numbers and a pause.
func TestTopShowsBlockedTasks(t *testing.T) {
	t.Parallel()
	s := newScreenTest(t, 80, 24)
	r := queuesOf(9_999_999, 5, 5)
	r.queues[0].Due, r.queues[0].Running = 9_999_999, 5_000
	r.queues[0].Blocked, r.queues[0].AtLeast = 100_000, true
	r.queues[0].Paused = &store.Gate{Actor: store.Actor{Name: "root"}}
	r.queues[1].Blocked = 7
	s.reads(r)
	s.has("BLOCKED", "100000+", "PAUSED", "by root")
	if got := strings.Fields(s.lines()[7]); len(got) < 5 || got[4] != "7" {
		t.Errorf("the row of the second queue is %q, want 7 blocked tasks", got)
	}
	s.press("s", "s", "s", "s", "s") // by blocked, the largest first
	s.has("BLOCKED↓")
	if got := s.first(); got != ">a-queue b-queue c-queue" {
		t.Errorf("by blocked: %s", got)
	}
	s.press("S")
	if got := s.first(); got != "c-queue b-queue >a-queue" {
		t.Errorf("by blocked, reversed: %s", got)
	}
}

func TestTopKeepsTheSelection(t *testing.T) {
	t.Parallel()
	s := newScreenTest(t, 80, 24)
	s.reads(queuesOf(5, 10, 7))
	if got := s.first(); got != ">a-queue b-queue c-queue" {
		t.Errorf("at first: %s", got)
	}
	s.press("j")
	s.press("s", "s") // by ready, the largest first
	if got := s.first(); got != ">b-queue c-queue a-queue" {
		t.Errorf("sorted: %s", got)
	}
	s.has("READY↓")
	s.reads(queuesOf(50, 10, 7)) // b is now the second one
	if got := s.first(); got != "a-queue >b-queue c-queue" {
		t.Errorf("after a change: %s", got)
	}
	s.press("S")
	if got := s.first(); got != "c-queue >b-queue a-queue" {
		t.Errorf("reversed: %s", got)
	}
	s.has("READY↑")
	r := queuesOf(50, 10, 7)
	r.queues = slices.Delete(r.queues, 1, 2) // b is gone
	s.reads(r)
	if got := s.first(); got != "c-queue >a-queue" {
		t.Errorf("without its row: %s", got)
	}
	for range s.table.columns { // at last there is no sort
		s.press("s")
		s.lines()
	}
}

func TestTopFilters(t *testing.T) {
	t.Parallel()
	s := newScreenTest(t, 80, 24)
	s.reads(queuesOf(5, 10, 7))
	s.press("/", "B-Q")
	s.has("filter: B-Q", `queues with "B-Q"`, "1 row")
	if got := s.first(); got != ">b-queue" {
		t.Errorf("filtered: %s", got)
	}
	s.press("q", "esc") // a letter in the prompt, which restores the filter before
	if got := s.first(); got != "a-queue >b-queue c-queue" {
		t.Errorf("restored: %s", got)
	}
	s.press("/", "zzz", "enter")
	s.has("no row contains the filter")
	s.press("esc")
	s.has("3 rows")

	// The filter of the tasks is a search.
	s.press("4")
	s.press("/", "state:redy", "enter")
	s.has("search: state:redy", "              ^", "unknown state")
	if s.prompt == nil {
		t.Fatal("the prompt has ended")
	}
	s.press("backspace", "backspace", "backspace", "backspace", "ready", "enter")
	if last := s.wants[len(s.wants)-1]; last.view != viewTasks || last.query != "state:ready" {
		t.Errorf("wants %+v", last)
	}
	s.has("tasks: state:ready", "reading")
	s.press("esc")
	if last := s.wants[len(s.wants)-1]; last.query != "" {
		t.Errorf("after Esc: %+v", last)
	}
}

func TestTopOpensAndGoesBack(t *testing.T) {
	t.Parallel()
	s := newScreenTest(t, 160, 24)
	s.reads(queuesOf(1, 2))
	s.press("down", "enter")
	if last := s.wants[len(s.wants)-1]; last.query != "queue:b-queue state:ready,running,dead" {
		t.Errorf("a queue opens %+v", last)
	}
	hostile := holdfast.Task{ID: 7, Type: "mail", State: holdfast.Ready, LastError: "\x1b[2J\x1b]0;title\x07 boom \u202e end"}
	s.reads(topReading{tasks: []surface.ListedTask{{Task: hostile}}})
	s.has("mail", `\u001b[2J\u001b]0;title\u0007`, `\u202e`)
	if strings.ContainsAny(strings.NewReplacer(styleBold, "", styleFaint, "", styleReverse, "", styleEnd, "").Replace(s.View().Content), "\x1b\x07") {
		t.Errorf("the screen sends a control character: %q", s.View().Content)
	}
	s.press("enter")
	if last := s.wants[len(s.wants)-1]; last.task != 7 {
		t.Errorf("a task opens %+v", last)
	}
	late := topReading{seq: s.seq - 1, queues: queuesOf(1).queues}
	s.Update(late) // an answer for a place that the user has left
	s.has("task 7", "reading")
	s.reads(topReading{task: &topTask{TaskDetails: surface.TaskDetails{ListedTask: surface.ListedTask{Task: hostile}}}})
	s.has("task 7: mail, ready", "page of task 7, unfolded false")
	s.press("enter")
	s.has("unfolded true")
	s.reads(topReading{})
	s.has("The store has no such task")
	s.press("?")
	s.has("Ctrl-Z")
	s.press("esc", "esc")
	s.has("tasks: queue:b-queue", "mail") // the rows before, until the next reading
	s.press("esc")
	if got := s.first(); got != "a-queue >b-queue" {
		t.Errorf("back: %s", got)
	}

	s.press("2")
	s.reads(topReading{workers: []surface.Worker{{Worker: 9, Name: "host/1", State: store.WorkerLive, Running: 1, Concurrency: 50}}})
	s.has("host/1", "1 of 50")
	s.press("enter")
	if last := s.wants[len(s.wants)-1]; last.query != "worker:9" {
		t.Errorf("a worker opens %+v", last)
	}
	s.reads(topReading{})
	s.has("tasks of host/1 (worker 9)", "no tasks match")

	s.press("3")
	s.reads(topReading{groups: []store.DeathGroup{{Fingerprint: "3f9ad02c41b7e685", Type: "mail", Class: "timeout", Tasks: 3, Error: "no answer"}}})
	s.has("timeout in mail: no answer")
	s.press("enter")
	if last := s.wants[len(s.wants)-1]; last.query != "state:dead group:3f9ad02c41b7e685" {
		t.Errorf("a group opens %+v", last)
	}
}

// The screen stays while the store is away, with the figures before.
func TestTopShowsThatTheServerIsAway(t *testing.T) {
	t.Parallel()
	s := newScreenTest(t, 80, 24)
	s.reads(queuesOf(5))
	s.has("09:00:01", "every 1s")
	s.reads(topReading{err: errors.New("dial db1: connection refused")})
	s.reads(topReading{err: errors.New("dial db1: no route to host")})
	s.has("server away since 09:00:02, trying again", "09:00:01", "a-queue", "no route to host")
	s.reads(queuesOf(6))
	s.has("every 1s", "09:00:04")
	if strings.Contains(strings.Join(s.lines(), "\n"), "away") {
		t.Error("the server is still away")
	}

	s.press("p")
	s.has("paused")
	n := len(s.wants)
	s.Update(topTick{s.seq})
	if len(s.wants) > n {
		t.Error("a paused screen has read the store")
	}
	s.press("p")
	if len(s.wants) != n+1 {
		t.Error("no reading after the pause")
	}
}

func TestTopRates(t *testing.T) {
	t.Parallel()
	s := newScreenTest(t, 80, 24)
	counts := func(done, dead int64) topReading {
		return topReading{sample: sampleOf(time.Time{}, []store.CountGroup{
			{Queue: "a-queue", State: holdfast.Done, Tasks: done}, {Queue: "a-queue", State: holdfast.Dead, Tasks: dead},
		}), queues: queuesOf(0).queues}
	}
	s.reads(counts(100, 5))
	s.has("done –/s  dead –/s", "done 100", "dead 5")
	s.reads(counts(140, 6))
	s.has("done 40.0/s  dead 1.0/s")
	s.reads(counts(20, 0)) // a janitor has deleted old tasks, and a person has retried the dead ones
	s.has("done 40.0/s  dead 1.0/s")
	s.reads(counts(20, 0))
	s.has("done 20.0/s  dead 0.5/s")
	for range 12 {
		s.reads(counts(20, 0))
	}
	s.has("done 0/s  dead 0/s")
}

// The screen fits any size, with and without rows.
func TestTopFitsAnySize(t *testing.T) {
	t.Parallel()
	wide := strings.Repeat("生命", 60)
	for _, columns := range []int{4, 9, 40, 79, 80, 99, 110, 200} {
		for _, rows := range []int{1, 2, 3, 7, 11, 12, 24, 60} {
			s := newScreenTest(t, columns, rows)
			s.lines()
			s.reads(queuesOf(1, 2_000_000_000, 3))
			s.lines()
			s.press("s", "end", "pgup", "home", "pgdown")
			s.lines()
			s.press("/")
			s.Update(tea.PasteMsg{Content: wide})
			s.lines()
			s.press("esc", "4")
			tasks := make([]surface.ListedTask, 100)
			for i := range tasks {
				tasks[i].Task = holdfast.Task{ID: holdfast.TaskID(1_000_000_000_000 - i), Type: "type", LastError: wide, State: holdfast.Cancelled}
			}
			s.reads(topReading{tasks: tasks, note: wide})
			s.lines()
			s.press("end")
			if rows >= 7 && columns >= 40 && !strings.Contains(strings.Join(s.lines(), "\n"), ">") {
				t.Errorf("the selected row is not on a screen of %d by %d", columns, rows)
			}
			s.press("/", "state:")
			s.Update(tea.PasteMsg{Content: wide})
			s.press("enter")
			s.lines()
			s.press("esc", "?")
			s.lines()
			s.reads(topReading{err: errors.New(wide)})
			s.lines()
		}
	}
}

// A stored value that makes the screen panic is reported in a line. The screen goes on.
func TestTheScreenSurvivesPanics(t *testing.T) {
	t.Parallel()
	for name, panics := range map[string]func(*screenTest){
		"reading": func(s *screenTest) {
			s.reads(topReading{err: contain.Call(func() error { panic("an odd value") })})
		},
		"page": func(s *screenTest) {
			s.o.page = func(*topTask, int, bool) []string { panic("an odd value") }
			s.path = append(s.path, &topPlace{want: topWant{view: viewTask, task: 7}, title: "task 7"})
			s.refresh()
			s.reads(topReading{task: &topTask{}})
		},
		"view": func(s *screenTest) {
			s.head.states = map[holdfast.State]int64{}
			s.table.columns = append(s.table.columns, topColumn{head: "odd"})
			s.table.rows = []topRow{{}}
		},
	} {
		s := newScreenTest(t, 80, 24)
		s.reads(topReading{})
		panics(s)
		s.has("panic: ")
		if strings.Contains(strings.Join(s.lines(), "\n"), "away") {
			t.Errorf("%s: the server counts as away", name)
		}
		s.press("2")
		s.reads(topReading{})
		s.has("no live workers")
	}
}
