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
	return append([]cli.Flag{&cli.StringFlag{Name: "reason", Usage: "why, as a `TEXT` of at most 1,000 characters for the audit log"}}, asFlag()...)
}

// asFlag returns the flag that names the person, for a command whose request has a reason of its own.
func asFlag() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "as", Usage: "the `NAME` for the audit log; default $" + actorVariable + ", or else the user of the operating system"},
	}
}

// none is the value of a flag that removes what was set before.
const none = "none"

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
