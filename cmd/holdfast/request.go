package main

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

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

// members returns the members of a request that have flags.
func members(request reflect.Type) []member {
	var found []member
	for _, field := range reflect.VisibleFields(request) {
		if field.Tag.Get("flag") != "" {
			found = append(found, member{field})
		}
	}
	return found
}

// name returns the name of the flag.
func (m member) name() string {
	tag := m.Tag.Get("json")
	if tag == "" {
		tag = m.Tag.Get("query")
	}
	tag, _, _ = strings.Cut(tag, ",")
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
		if m.Type.Kind() == reflect.Bool {
			flags = append(flags, &cli.BoolFlag{Name: m.name(), Usage: m.doc()})
			continue
		}
		flags = append(flags, describedFlag{&cli.StringFlag{Name: m.name()}, m.Tag.Get("flag"), m.doc()})
	}
	return flags
}

// request sets the members of a request from the flags of a command, and returns the actor of the command. It refuses empty
// values, because they are usually variables of a script that are not set.
func (t *tool) request(c *cli.Context, into any) (store.Actor, error) {
	if err := readRequest(c, into); err != nil {
		return store.Actor{}, err
	}
	return t.actor(c)
}

// readRequest is like tool.request, for a request that changes nothing.
func readRequest(c *cli.Context, into any) error {
	value := reflect.ValueOf(into).Elem()
	for _, m := range members(value.Type()) {
		name, text := m.name(), ""
		switch {
		case m.Type.Kind() == reflect.Bool:
			value.FieldByIndex(m.Index).SetBool(c.Bool(name))
			continue
		case c.IsSet(name):
			if text = c.String(name); strings.TrimSpace(text) == "" {
				return usageOf(commandName(c), "--%s is empty", name)
			}
		default:
			if text = m.Tag.Get("default"); text == "" {
				continue
			}
		}
		if err := m.set(value.FieldByIndex(m.Index), text); err != nil {
			return usageOf(commandName(c), "--%s %w", name, err)
		}
	}
	return nil
}

// set parses the value of a flag.
func (m member) set(into reflect.Value, text string) error {
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
		into.SetInt(n)
	default:
		panic("no flag can set a member of the type " + into.Type().String())
	}
	return nil
}
