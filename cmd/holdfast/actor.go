package main

import (
	"os/user"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/store"
)

// actorVariable is the environment variable with the name of the person for whom a script runs commands.
const actorVariable = "HOLDFAST_ACTOR"

// actorFlags returns the flags of commands that change tasks for a person.
func actorFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "reason", Usage: "why, as a `TEXT` of at most 1,000 characters for the audit log"},
		&cli.StringFlag{Name: "as", Usage: "the `NAME` for the audit log; default $" + actorVariable + ", or else the user of the operating system"},
	}
}

// none is the value of a flag that removes what was set before.
const none = "none"

// changeFlags returns the flags of actorFlags, for a command that changes a record with a reason of its own.
func changeFlags() []cli.Flag {
	flags := actorFlags()
	flags[0] = &cli.StringFlag{
		Name:  "reason",
		Usage: "why, as a `TEXT` of at most 1,000 characters, also for the audit log; none removes the reason; without it, the reason stays",
	}
	return flags
}

// changedReason returns the reason that --reason of changeFlags gives, and whether the flag removes the reason.
func changedReason(text string) (reason string, remove bool) {
	if text == none {
		return "", true
	}
	return text, false
}

// actor returns who requests a change, for the audit log.
func (t *tool) actor(c *cli.Context) (store.Actor, error) {
	name := strings.TrimSpace(c.String("as"))
	if c.IsSet("as") && name == "" {
		return store.Actor{}, usageOf(commandName(c), "--as is empty")
	}
	if name == "" {
		name = strings.TrimSpace(t.variable(actorVariable))
	}
	if name == "" {
		name = "unknown"
		if current, err := user.Current(); err == nil { // without a name, the time and the reason must do
			name = current.Username
		}
	}
	return store.Actor{Name: name, Surface: store.CommandLine, Reason: c.String("reason")}, nil
}
