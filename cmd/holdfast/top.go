package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
)

// topCommand is the command top. Its files, in the order of the data:
//
//	top.go        the command: it checks the terminal and runs the screen
//	top_read.go   one reading of the store
//	top_rates.go  rates from the differences of readings
//	top_table.go  the rows of each view: sort, filter
//	top_model.go  what keys and readings change
//	top_view.go   the lines of the screen
//	top_page.go   the page of one task
type topCommand struct{ *tool }

// leastEvery is the shortest interval between two readings.
const leastEvery = 200 * time.Millisecond

func (t topCommand) command() *cli.Command {
	return t.verb("top", "watch queues, workers, failures and tasks on a screen",
		`The screen fits a terminal of 80 columns and shows more on a wider one. It changes nothing in the store. The views:

  1  queues       ready, due, running and blocked tasks, the age of the oldest due task, rates
  2  workers      live workers; Enter shows the tasks that a worker runs
  3  dead groups  dead tasks by cause
  4  tasks        the newest tasks, or those that match a search

Arrows or j and k move, Enter opens, Esc goes back, / filters, s and S sort, p pauses, q quits, and ? lists all keys. A
task has a page: why it waits, what follows, its attempts and its payload. In the view of the tasks, a filter is a
search: see "holdfast help search".

The rates are tasks that became done or dead per second, over the last ten seconds; IN/S is tasks stored per second. A
rate leaves out the moments at which a janitor deletes old tasks or a person retries dead ones. If a reading takes long,
the next one starts later, so that the screen costs the store at most a tenth of its time.

In a script use "queue list -o json", and "queue list --watch" on a terminal that cannot move its cursor.

Example:
  holdfast top
  ssh -t db1 holdfast top --every 5s`,
		action{run: t.run, flags: requestFlags[topRequest]()})
}

// topRequest is the request of top.
type topRequest struct {
	Every time.Duration `json:"every" flag:"DURATION" default:"1s" doc:"Refresh at this interval, at least 200ms."`
}

// Check returns an error if the interval is too short.
func (r topRequest) Check() error {
	if r.Every < leastEvery {
		return fmt.Errorf("%w: --every %s must be at least %s", holdfast.ErrInvalid, r.Every, leastEvery)
	}
	return nil
}

func (t topCommand) run(ctx context.Context, c *cli.Context) error {
	var r topRequest
	if err := readRequest(c, &r); err != nil {
		return err
	}
	if err := t.checkTerminal(); err != nil {
		return err
	}
	if isTerminal(t.stderr) { // a line of the log would damage the screen
		held, stderr := &heldLog{}, t.stderr
		t.stderr = held
		defer func() {
			t.stderr = stderr
			held.print(stderr)
		}()
	}
	return t.withBackend(ctx, c, app.Attach, func(b *app.Backend) error { return t.show(ctx, b, r.Every) })
}

// checkTerminal returns an error if the command cannot show a screen.
func (t topCommand) checkTerminal() error {
	refuse := func(problem string) error {
		return &failure{err: fmt.Errorf("top needs a terminal, but %s", problem), code: exitUsage,
			hint: "over ssh use: ssh -t; without a screen use: holdfast queue list --watch; in a script use: holdfast queue list -o json"}
	}
	switch name := t.variable("TERM"); {
	case !isTerminal(t.stdout) || fileOf(t.stdout) == nil:
		return refuse("stdout is none")
	case !isTerminal(t.stdin):
		return refuse("stdin is none")
	case name == "" || name == "dumb":
		return refuse(fmt.Sprintf("TERM=%s names none that can move its cursor", name))
	}
	return nil
}

// show runs the screen until the user quits or ctx is done. It returns after the terminal is as it was before.
func (t topCommand) show(ctx context.Context, b *app.Backend, every time.Duration) error {
	m := newTopModel(topOptions{
		every: every, colors: t.colors(t.stdout), page: t.pageOf, message: t.shortMessage,
		begin: func(want topWant) (func() topReading, context.CancelFunc) {
			reading, cancel := context.WithTimeout(ctx, topTimeout)
			return func() topReading {
				defer cancel()
				return readTop(reading, b, want)
			}, cancel
		},
	})
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(t.stdin), tea.WithOutput(fileOf(t.stdout)),
		tea.WithEnvironment(t.env), tea.WithoutSignalHandler()).Run()
	m.stop()
	if err != nil {
		return fmt.Errorf("show the screen: %w", err)
	}
	return nil
}

// heldLog keeps the first messages of the log until the screen has ended.
type heldLog struct {
	mu   sync.Mutex
	text bytes.Buffer
	lost int // bytes
}

// maxHeldLog is the maximum number of bytes that a heldLog keeps.
const maxHeldLog = 8 << 10

// Write implements io.Writer.
func (h *heldLog) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.text.Len()+len(p) > maxHeldLog {
		h.lost += len(p)
	} else {
		h.text.Write(p)
	}
	return len(p), nil
}

func (h *heldLog) print(to io.Writer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, _ = h.text.WriteTo(to)
	if h.lost > 0 {
		fmt.Fprintf(to, "holdfast: %d more bytes of messages are left out\n", h.lost)
	}
}
