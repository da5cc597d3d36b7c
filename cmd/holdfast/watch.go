package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"
)

// watchInterval is the interval at which --watch repeats a command.
const watchInterval = 2 * time.Second

func watchFlag() []cli.Flag {
	return []cli.Flag{&cli.BoolFlag{Name: "watch", Usage: fmt.Sprintf("repeat the command every %s until Ctrl-C", watchInterval)}}
}

// frame buffers the output of one execution of the command, so that the screen does not flicker.
type frame struct {
	bytes.Buffer
	terminal bool      // the frame will be written to a terminal
	screen   io.Writer // the terminal
}

// watch repeats a command until ctx is done. On a terminal, each output replaces the previous one. Elsewhere, each
// output follows the previous one.
func (t *tool) watch(ctx context.Context, title string, command func() error) error {
	screen := t.stdout
	if !isTerminal(screen) {
		return repeat(ctx, command)
	}
	defer func(stderr io.Writer) { t.stdout, t.stderr = screen, stderr }(t.stderr)
	onScreen := isTerminal(t.stderr)
	return repeat(ctx, func() error {
		shown := &frame{terminal: true, screen: screen}
		t.stdout = shown
		if onScreen {
			t.stderr = shown
		}
		fmt.Fprintf(shown, "\x1b[H\x1b[2J%s   every %s, at %s\n\n", title, watchInterval, time.Now().Format(time.TimeOnly))
		err := command()
		if ctx.Err() != nil {
			return nil
		}
		if _, writeErr := shown.WriteTo(screen); err == nil {
			err = writeErr
		}
		return err
	})
}

// repeat calls command at once and then at each interval. It returns nil when ctx is done.
func repeat(ctx context.Context, command func() error) error {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		if err := command(); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
