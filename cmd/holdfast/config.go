package main

import (
	"context"
	"errors"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/configs"
)

// configCommands implements the command config and its subcommands.
type configCommands struct{ *tool }

func (t configCommands) command() *cli.Command {
	return noun("config", "show and check the configuration",
		t.verb("show", "print every key with its value and the origin of the value",
			`Asterisks replace passwords and secrets. If the configuration has errors, the command prints the values
that it could read, and the exit code is 2.

Example:
  HOLDFAST_WORKER_LEASE=10s holdfast config show`,
			plain(t.show), outputFlag()),
		t.verb("validate", "report every error in the configuration",
			`Reads the file, the environment and the flags, but connects to no server. The exit code is 0 if the
configuration is valid, and 7 if it has errors.

Example:
  holdfast config validate --config holdfast.yaml`,
			plain(t.validate)),
	)
}

func (t configCommands) show(_ context.Context, c *cli.Context) error {
	cfg, err := t.load(c)
	if _, partial := errors.AsType[*configs.Error](err); err != nil && !partial { // the command line or the whole file is invalid
		return err
	}
	entries := cfg.Entries()
	for i := range entries {
		entries[i].Origin = t.origin(entries[i].Origin)
	}
	return errors.Join(err, list(t.tool, c, "settings", entries, "there are no settings", entryColumns()...))
}

// entryColumns returns the columns of a list of settings.
func entryColumns() []column[configs.Entry] {
	return []column[configs.Entry]{
		{"key", func(e configs.Entry) string { return e.Key }},
		{"value", func(e configs.Entry) string { return e.Value }},
		{"origin", func(e configs.Entry) string { return e.Origin }},
	}
}

func (t configCommands) validate(_ context.Context, c *cli.Context) error {
	if _, err := t.load(c); err != nil {
		return &failure{err: err, code: exitCheck}
	}
	t.say("the configuration is valid")
	return nil
}
