package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"github.com/holdfastq/holdfast/workshop/slow"
)

// pseudoTerminal is a command that runs in a pseudo-terminal, and what a person would see there.
type pseudoTerminal struct {
	t       *testing.T
	command *exec.Cmd
	file    *os.File
	screen  *vt.SafeEmulator
	changed chan struct{} // has a value after a change of the screen
	ended   chan error    // the end of the output
}

// startInTerminal starts the program in a pseudo-terminal.
func startInTerminal(t *testing.T, environment []string, columns, rows int, args ...string) *pseudoTerminal {
	t.Helper()
	p := &pseudoTerminal{
		t: t, command: exec.CommandContext(t.Context(), program, args...), screen: vt.NewSafeEmulator(columns, rows),
		changed: make(chan struct{}, 1), ended: make(chan error, 1),
	}
	p.command.Env = environment
	var err error
	if p.file, err = pty.StartWithSize(p.command, &pty.Winsize{Cols: uint16(columns), Rows: uint16(rows)}); err != nil {
		t.Fatal(err)
	}
	answers := make(chan error, 1)
	go func() { // what the terminal answers to queries of the program
		_, err := io.Copy(p.file, p.screen)
		answers <- err
	}()
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := p.file.Read(buffer)
			_, _ = p.screen.Write(buffer[:n])
			select {
			case p.changed <- struct{}{}:
			default:
			}
			if err != nil { // EIO after the end of the program
				p.ended <- err
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = p.command.Process.Kill()
		_ = p.screen.InputPipe().(io.Closer).Close()
		<-answers
		_ = p.file.Close()
	})
	return p
}

// lines returns the lines of the screen.
func (p *pseudoTerminal) lines() []string {
	var lines []string
	for y := range p.screen.Height() {
		var line strings.Builder
		for x := 0; x < p.screen.Width(); x++ {
			cell := p.screen.CellAt(x, y)
			if cell == nil || cell.Content == "" {
				line.WriteByte(' ')
				continue
			}
			line.WriteString(cell.Content)
			x += max(0, cell.Width-1)
		}
		lines = append(lines, strings.TrimRight(line.String(), " "))
	}
	return lines
}

// waitFor waits until the screen meets a condition, and returns its lines.
func (p *pseudoTerminal) waitFor(what string, met func(lines []string) bool) []string {
	p.t.Helper()
	limit := time.After(slow.Patience())
	for {
		lines := p.lines()
		for _, line := range lines {
			if text.StringWidthWithoutEscSequences(line) > p.screen.Width() {
				p.t.Fatalf("a line is wider than the screen: %q", line)
			}
		}
		if met(lines) {
			return lines
		}
		select {
		case <-p.changed:
		case <-limit:
			p.t.Fatalf("the screen does not show %s:\n%s", what, strings.Join(lines, "\n"))
		}
	}
}

// shows waits until the screen has all texts.
func (p *pseudoTerminal) shows(texts ...string) []string {
	p.t.Helper()
	return p.waitFor(fmt.Sprintf("%q", texts), func(lines []string) bool {
		all := strings.Join(lines, "\n")
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(all, text) })
	})
}

// press sends keys.
func (p *pseudoTerminal) press(keys string) {
	p.t.Helper()
	if _, err := io.WriteString(p.file, keys); err != nil {
		p.t.Fatal(err)
	}
}

// resize changes the size of the terminal.
func (p *pseudoTerminal) resize(columns, rows int) {
	p.t.Helper()
	p.screen.Resize(columns, rows)
	if err := pty.Setsize(p.file, &pty.Winsize{Cols: uint16(columns), Rows: uint16(rows)}); err != nil {
		p.t.Fatal(err)
	}
}

// exits waits for the end of the program, and returns its exit code.
func (p *pseudoTerminal) exits() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(slow.Patience()):
		p.t.Fatalf("the program does not end:\n%s", strings.Join(p.lines(), "\n"))
	}
	if p.screen.IsAltScreen() || p.screen.CursorHidden() {
		p.t.Error("the terminal is not as it was before")
	}
	err := p.command.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return exitOK
}

// topEnvironment returns the environment of a new file with tasks: two that are dead, and three that are ready in the
// queue slow.
func topEnvironment(t *testing.T) []string {
	t.Helper()
	environment := append(os.Environ(), "DATABASE_URL=sqlite:"+t.TempDir()+"/tasks.db", "AMQP_URL=", "HOLDFAST_LISTEN=", "HOLDFAST_AMQP_PREFIX=",
		"TERM=xterm-256color", "NO_COLOR=")
	enqueue := func(args ...string) {
		if code, out, errs := run(environment, append([]string{"enqueue"}, args...)); code != exitOK {
			t.Fatalf("enqueue: %d %s %s", code, out, errs)
		}
	}
	for range 2 { // the process allows no address on this machine
		enqueue("--type", "http", "--payload", `{"url":"https://127.0.0.1:1/"}`, "--set", "webhook.allow_cidrs=127.0.0.0/8")
	}
	for i := range 3 {
		enqueue("--type", "report", "--queue", "slow", "--delay", "1h", "--unique", fmt.Sprintf("\x1b[2Jcustomer%d\x07", i),
			"--payload", fmt.Sprintf(`{"number":%d,"items":[1,2,3,4,5,6,7,8,9,10,11,12]}`, i))
	}
	return environment
}

// serveFor runs holdfast serve until the tasks with the given ids have ended.
func serveFor(t *testing.T, environment []string, ids ...string) {
	t.Helper()
	serve := exec.CommandContext(t.Context(), program, "serve")
	serve.Env = environment
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = serve.Process.Signal(syscall.SIGTERM)
		_ = serve.Wait()
	})
	args := append([]string{"task", "wait", "--timeout", slow.Patience().String()}, ids...)
	if code, out, errs := run(environment, args); code != exitFailure {
		t.Fatalf("task wait: %d %s %s", code, out, errs)
	}
}

func TestTopInATerminal(t *testing.T) {
	t.Parallel()
	environment := topEnvironment(t)
	serveFor(t, environment, "1", "2")
	p := startInTerminal(t, environment, 80, 24, "top", "--every", "200ms")

	p.shows("ready 3", "dead 2", "workers 1", "slow", "done 0/s")

	p.press("3")
	p.shows("> ", "TITLE", "forbidden_address")
	p.press("\r")
	p.shows("tasks: state:dead group:", ">       2", "        1")

	p.press("2")
	p.shows("RENEWED", "0 of 50")
	p.press("\r")
	p.shows("no tasks match")

	// The filter of the tasks is a search. An error stays below it until it is mended.
	p.press("4")
	p.shows("tasks", "> ", "report", "http")
	p.press("/state:redy\r")
	p.shows("search: state:redy", "              ^", "unknown state")
	p.press("\x7f\x7f\x7f\x7fready\r")
	p.shows("tasks: state:ready")
	p.waitFor("only ready tasks", func(lines []string) bool { return !strings.Contains(strings.Join(lines[5:], "\n"), "http") })

	// The page of a task. Its texts cannot move the cursor.
	p.press("\x1b[B\r")
	p.shows("task 4: report, ready", `\u001b[2Jcustomer1\u0007`, "why", "payload")
	p.press("G")
	p.shows("Enter shows them")
	p.press("\rG")
	p.shows(`"number": 1`)
	p.press("?")
	p.shows("Ctrl-Z")
	p.press("\x1b")
	p.shows("task 4: report")
	p.press("q")
	if code := p.exits(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// The screen follows the size of the terminal, and a signal ends it as it ends other commands.
func TestTopFollowsTheTerminal(t *testing.T) {
	t.Parallel()
	p := startInTerminal(t, topEnvironment(t), 80, 24, "top", "--every", "200ms")
	p.shows("ready 5", "workers 0", "> default")
	p.resize(120, 40)
	p.shows("IN/S", "WORKERS", "PAUSED")
	p.waitFor("the keys in the last line", func(lines []string) bool { return strings.HasPrefix(lines[39], "Enter open") })
	p.resize(40, 10)
	p.waitFor("a low screen", func(lines []string) bool {
		return strings.HasPrefix(lines[0], "holdfast top") && strings.HasPrefix(lines[1], "queues") && strings.HasPrefix(lines[9], "Enter open")
	})
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.exits(); code != exitInterrupted {
		t.Errorf("exit code %d", code)
	}
}

// Without a terminal that can move its cursor, the command says what to use instead.
func TestTopNeedsATerminal(t *testing.T) {
	t.Parallel()
	code, out, errs := run(os.Environ(), []string{"top"})
	if code != exitUsage || len(out) > 0 || !strings.Contains(string(errs), "stdout is none") || !strings.Contains(string(errs), "holdfast queue list --watch") {
		t.Errorf("without a terminal: %d %s %s", code, out, errs)
	}
	code, _, errs = run(os.Environ(), []string{"top", "--every", "100ms"})
	if code != exitUsage || !strings.Contains(string(errs), "--every 100ms must be at least 200ms") {
		t.Errorf("too often: %d %s", code, errs)
	}
	p := startInTerminal(t, append(os.Environ(), "TERM=dumb"), 80, 24, "top")
	p.shows("TERM=dumb")
	if code := p.exits(); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
}

// A panic leaves the terminal as it was before.
func TestTopRestoresTheTerminalAfterAPanic(t *testing.T) {
	t.Parallel()
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer tty.Close()
	screen := vt.NewSafeEmulator(80, 24)
	output := make(chan error, 1)
	go func() {
		_, err := io.Copy(screen, master)
		output <- err
	}()
	go func() { _, _ = io.Copy(io.Discard, screen) }()
	before, err := term.GetState(int(tty.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	command := topCommand{&tool{terminal: terminal{stdin: tty, stdout: tty, stderr: io.Discard, env: []string{"TERM=xterm"}}}}
	if err := command.show(t.Context(), nil, time.Second); !errors.Is(err, tea.ErrProgramPanic) { // without a backend, the first reading panics
		t.Errorf("show: %v", err)
	}
	after, err := term.GetState(int(tty.Fd()))
	if err != nil || !reflect.DeepEqual(before, after) {
		t.Errorf("the mode of the terminal is %v, %v; want %v", after, err, before)
	}
	if err := tty.Close(); err != nil {
		t.Fatal(err)
	}
	<-output
	_ = screen.InputPipe().(io.Closer).Close()
	if screen.IsAltScreen() || screen.CursorHidden() {
		t.Error("the screen is not as it was before")
	}
}
