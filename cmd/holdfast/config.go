package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // for systems without zone data, such as small containers

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app/daemon"
	"github.com/holdfastq/holdfast/configs"
)

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
	return errors.Join(err, printList(t.tool, c, "settings", entries, "there are no settings", entryColumns()...))
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
	for _, line := range daemon.CheckTracing(t.variable) {
		t.say("warning: %s", line)
	}
	t.say("the configuration is valid")
	return nil
}

// settingFlag is a flag that sets a key of the configuration. Package configs validates the value as typed.
type settingFlag struct {
	describedFlag
	key string
}

// setting returns a flag that sets a key of the configuration. The key must exist.
func setting(name, key, placeholder string) cli.Flag {
	return settingFlag{describedFlag{&cli.StringFlag{Name: name}, placeholder, settingDoc(key, ""), nil}, key}
}

// settings is like setting, for a key whose value is a list.
func settings(name, key, placeholder string) cli.Flag {
	doc := settingDoc(key, " Separate several values with commas, or repeat the flag.")
	return settingFlag{describedFlag{&cli.StringSliceFlag{Name: name}, placeholder, doc, nil}, key}
}

// variablesOnce returns configs.Variables. Each flag of a setting needs them, at the start of each command.
var variablesOnce = sync.OnceValue(configs.Variables)

// settingDoc returns the description of a key, followed by its environment variable and its default.
func settingDoc(key, more string) string {
	variables := variablesOnce()
	v := variables[slices.IndexFunc(variables, func(v configs.Variable) bool { return v.Key == key })]
	variable := v.Name
	if v.Also != "" {
		variable = v.Also + " or " + v.Name
	}
	if v.Default != "" {
		variable += "; default " + v.Default
	}
	return fmt.Sprintf("%s%s [%s]", v.Doc, more, variable)
}

// given returns the value of the flag as typed, and whether the flag is set. It joins the values of a list with commas.
func (f settingFlag) given(c *cli.Context) (text string, ok bool) {
	name := f.Names()[0]
	if !c.IsSet(name) {
		return "", false
	}
	if _, list := f.Flag.(*cli.StringSliceFlag); list {
		return strings.Join(c.StringSlice(name), ","), true
	}
	return c.String(name), true
}

func globalFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "config", Usage: "read settings from the YAML file `FILE` [" + configs.FileVariable + "]"},
		setting("database-url", "database.url", "URL"),
		settings("amqp-url", "amqp.urls", "URL"),
		setting("schema", "database.schema", "NAME"),
		setting("prefix", "amqp.prefix", "NAME"),
		setting("log-level", "log.level", "LEVEL"),
		setting("log-format", "log.format", "FORMAT"),
		&cli.BoolFlag{Name: "no-color", Usage: "write no colors, even to a terminal [NO_COLOR]"},
		&cli.StringSliceFlag{Name: "set", Usage: "set any configuration key, as `KEY=VALUE`, for example worker.lease=10s. " +
			"May be repeated. [HOLDFAST_ and the key in upper case, with _ for dots]"},
	}
}

// load reads the configuration for a command.
func (t *tool) load(c *cli.Context) (configs.Config, error) {
	options := configs.Options{Env: t.env, Flags: make(map[string]string)}
	t.flags = make(map[string]string)
	if c.IsSet("config") {
		if options.File = c.String("config"); options.File == "" {
			return configs.Config{}, usage("--config needs the path of a file")
		}
	}
	program := c.Lineage()[1] // a command may have a flag --set of its own
	for _, pair := range program.StringSlice("set") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return configs.Config{}, usage("--set %s: use the form key=value", pair)
		}
		if err := knownKey(key); err != nil {
			return configs.Config{}, err
		}
		options.Flags[key], t.flags[key] = value, "--set "+key
	}
	for _, flag := range slices.Concat(c.App.Flags, c.Command.Flags) {
		if f, ok := flag.(settingFlag); ok {
			if text, ok := f.given(c); ok {
				options.Flags[f.key], t.flags[f.key] = text, "--"+f.Names()[0]
			}
		}
	}
	cfg, err := configs.Load(options)
	t.debug = cfg.Log.Level == "debug"
	if err != nil && exitCode(err) == exitFailure { // the file cannot be read
		err = &failure{err: err, code: exitUsage}
	}
	return cfg, err
}

// knownKey returns an error with a suggestion if key, from --set, does not exist.
func knownKey(key string) error {
	var keys []string
	for _, v := range configs.Variables() {
		before, after, placeholder := strings.Cut(v.Key, "<name>")
		if v.Key == key || placeholder && strings.HasPrefix(key, before) && strings.HasSuffix(key, after) && len(key) > len(before)+len(after) {
			return nil
		}
		keys = append(keys, v.Key)
	}
	return &failure{err: usage("--set %s: unknown key%s", key, didYouMean(key, keys)), code: exitUsage, hint: "to list all keys: holdfast config show"}
}

// origin converts the origin of a value as package configs names it. If the origin is a flag, it returns the flag as
// typed.
func (t *tool) origin(text string) string {
	if key, ok := strings.CutPrefix(text, "flag --"); ok && t.flags[key] != "" {
		return "flag " + t.flags[key]
	}
	return text
}

// checkZone returns an error if name, the value of TZ, names no time zone. Package time would silently use UTC, and
// tasks would start hours before or after the given local time. The empty name means UTC.
func checkZone(name string) error {
	name = strings.TrimPrefix(name, ":")
	var err error
	switch {
	case filepath.IsAbs(name):
		var data []byte
		if data, err = os.ReadFile(name); err == nil {
			_, err = time.LoadLocationFromTZData(name, data)
		}
	case name == "Local": // a name of package time only
		err = os.ErrNotExist
	default:
		_, err = time.LoadLocation(name)
	}
	if err != nil {
		return usage("TZ: unknown time zone %.100q; set TZ to a name like Europe/Berlin or UTC, or unset it", name)
	}
	return nil
}
