package main

import (
	"cmp"
	"context"
	"encoding"
	"fmt"
	"os/user"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/surface"
	"github.com/holdfastq/holdfast/store"
)

// describedFlag is a flag with a placeholder for its value and a description.
type describedFlag struct {
	cli.Flag
	placeholder, doc string
}

// member is a member of a request that has a flag; see surface.Optional.
type member struct{ reflect.StructField }

// members returns the members of a request that have a flag or are an argument.
func members(request reflect.Type) []member {
	var found []member
	for _, field := range reflect.VisibleFields(request) {
		if field.Tag.Get("flag") != "" || field.Tag.Get("arg") != "" {
			found = append(found, member{field})
		}
	}
	return found
}

// name returns the name of the flag.
func (m member) name() string {
	tag, _, _ := strings.Cut(cmp.Or(m.Tag.Get("option"), m.Tag.Get("json"), m.Tag.Get("query")), ",")
	return strings.ReplaceAll(tag, "_", "-")
}

// doc returns the description of the flag.
func (m member) doc() string {
	doc := strings.TrimSuffix(m.Tag.Get("doc"), ".")
	doc = strings.ToLower(doc[:1]) + strings.ReplaceAll(doc[1:], "null ", none+" ")
	if enum := m.Tag.Get("enum"); enum != "" {
		doc += ": " + strings.ReplaceAll(enum, ",", ", ")
	}
	if value := m.Tag.Get("default"); value != "" {
		doc += "; default " + value
	}
	return doc
}

// requestFlags returns the flags of a request, in the order of its members.
func requestFlags[R any]() []cli.Flag {
	var flags []cli.Flag
	for _, m := range members(reflect.TypeFor[R]()) {
		switch placeholder := m.Tag.Get("flag"); {
		case placeholder == "": // an argument
		case placeholder == "-":
			flags = append(flags, &cli.BoolFlag{Name: m.name(), Usage: m.doc()})
		case m.Type == reflect.TypeFor[[]string](), m.Type.Kind() == reflect.Map:
			flags = append(flags, describedFlag{&cli.StringSliceFlag{Name: m.name()}, placeholder, m.doc()})
		default:
			flags = append(flags, describedFlag{&cli.StringFlag{Name: m.name()}, placeholder, m.doc()})
		}
	}
	return flags
}

// action is what a command does, with the flags of its request.
type action struct {
	run   func(context.Context, *cli.Context) error
	flags []cli.Flag
}

// plain returns an action that has no request, or reads its flags itself.
func plain(run func(context.Context, *cli.Context) error) action { return action{run: run} }

// reads returns an action that reads a request, opens a backend and calls read.
func reads[R any](t *tool, open opener, read func(context.Context, *cli.Context, *app.Backend, R) error) action {
	return action{flags: requestFlags[R](), run: func(ctx context.Context, c *cli.Context) error {
		var r R
		if err := readRequest(c, &r); err != nil {
			return err
		}
		return t.withBackend(ctx, c, open, func(b *app.Backend) error { return read(ctx, c, b, r) })
	}}
}

// changes is like reads, for a command that changes something for a person.
func changes[R any](t *tool, open opener, change func(context.Context, *cli.Context, *app.Backend, store.Actor, R) error) action {
	flags := requestFlags[R]()
	if find(flags, "reason") != nil {
		flags = append(flags, asFlag()...)
	} else {
		flags = append(flags, actorFlags()...)
	}
	return action{flags: flags, run: func(ctx context.Context, c *cli.Context) error {
		var r R
		if err := readRequest(c, &r); err != nil {
			return err
		}
		by, err := t.actor(c)
		if err != nil {
			return err
		}
		return t.withBackend(ctx, c, open, func(b *app.Backend) error { return change(ctx, c, b, by, r) })
	}}
}

// readRequest sets the members of a request from the flags and the arguments of a command. It refuses empty values of
// flags, because they are usually variables of a script that are not set.
func readRequest(c *cli.Context, into any) error {
	value := reflect.ValueOf(into).Elem()
	for _, m := range members(value.Type()) {
		if err := m.read(c, value.FieldByIndex(m.Index)); err != nil {
			return err
		}
	}
	if checked, ok := into.(interface{ Check() error }); ok {
		return checked.Check()
	}
	return nil
}

// read sets a member from its flag or its argument.
func (m member) read(c *cli.Context, into reflect.Value) error {
	name, text := m.name(), ""
	if index := m.Tag.Get("arg"); index != "" {
		if err := m.readArguments(c, index, into); err != nil {
			return usageOf(commandName(c), "%w", err)
		}
		return nil
	}
	switch target := into.Addr().Interface().(type) {
	case *bool:
		*target = c.Bool(name)
		return nil
	case **bool:
		if c.IsSet(name) {
			*target = new(c.Bool(name))
		}
		return nil
	case *[]string:
		*target = c.StringSlice(name)
		return nil
	case *map[string]string:
		*target = make(map[string]string)
		for _, pair := range c.StringSlice(name) {
			key, value, ok := strings.Cut(pair, "=")
			if !ok {
				return usageOf(commandName(c), "--%s %s: use the form key=value", name, pair)
			}
			(*target)[key] = value
		}
		return nil
	}
	switch {
	case c.IsSet(name):
		if text = c.String(name); strings.TrimSpace(text) == "" {
			return usageOf(commandName(c), "--%s is empty", name)
		}
	case m.Tag.Get("required") == "true":
		return usageOf(commandName(c), "give --%s: %s", name, m.doc())
	default:
		if text = m.Tag.Get("default"); text == "" {
			return nil
		}
	}
	if err := m.set(into, text); err != nil {
		return usageOf(commandName(c), "--%s %w", name, err)
	}
	return nil
}

// readArguments sets a member from the argument with an index, or from all arguments if the index is "...".
func (m member) readArguments(c *cli.Context, index string, into reflect.Value) error {
	if n, err := strconv.Atoi(index); err == nil {
		return m.set(into, c.Args().Get(n))
	}
	into.Set(reflect.MakeSlice(into.Type(), c.NArg(), c.NArg()))
	for i, text := range c.Args().Slice() {
		if err := m.set(into.Index(i), text); err != nil {
			return err
		}
	}
	return nil
}

// set parses a value.
func (m member) set(into reflect.Value, text string) error {
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
	}
	if enum := m.Tag.Get("enum"); enum != "" && !slices.Contains(strings.Split(enum, ","), text) {
		return fmt.Errorf("%q is not one of %s", text, strings.ReplaceAll(enum, ",", ", "))
	}
	switch target := into.Addr().Interface().(type) {
	case *surface.Optional[string]:
		if target.Given = true; text != none {
			target.Value = &text
		}
		return nil
	case *surface.Optional[int]:
		if target.Given = true; text == none {
			return nil
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q must be a whole number, or none", text)
		}
		target.Value = &n
		return nil
	case encoding.TextUnmarshaler:
		return target.UnmarshalText([]byte(text))
	case *time.Duration:
		d, err := time.ParseDuration(text)
		switch {
		case err != nil:
			return fmt.Errorf("%q is not a duration like 90s or 2h", text)
		case d <= 0:
			return fmt.Errorf("%s must be more than 0", text)
		}
		*target = d
		return nil
	}
	switch into.Kind() {
	case reflect.String:
		into.SetString(text)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("%q must be a whole number", text)
		}
		if least, err := strconv.ParseInt(m.Tag.Get("minimum"), 10, 64); err == nil && n < least {
			return fmt.Errorf("%d must be at least %d", n, least)
		}
		if most, err := strconv.ParseInt(m.Tag.Get("most"), 10, 64); err == nil && n > most {
			return fmt.Errorf("%d must be at most %d", n, most)
		}
		into.SetInt(n)
	default:
		panic("no flag can set a member of the type " + into.Type().String())
	}
	return nil
}

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
