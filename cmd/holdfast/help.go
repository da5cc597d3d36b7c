package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/internal/search"
)

const helpWidth = 100 // columns, or fewer on a narrower terminal

// helpTexts has the help texts about more than one command.
var helpTexts = map[string]func(b *helpText, program *cli.App){
	"flags": func(b *helpText, program *cli.App) {
		b.paragraphs("Every command has these flags. The environment variable in brackets sets the same value.")
		b.flags("Global flags", program.Flags)
	},
	"search": func(b *helpText, _ *cli.App) {
		b.paragraphs(`A search is a list of terms between spaces. A task matches if it matches all of them.

Example:
  holdfast task list -q 'state:dead,ready type:http error:"connection refused" since:2h'

A term is a field, a colon and a value. Without a field, a number is an id, and any other value or a number in double
quotes is a part of the last error. A value with spaces is in double quotes; write \" for a quote in it, and \\ for a
backslash. Each field may appear once, except -id, tag and payload.

A path has the keys of objects and the indexes of arrays between dots. A key with characters other than letters, digits,
_, - and $ is in double quotes. A value in quotes matches a string; without quotes it also matches a number, true, false
or null.

Lists of dead tasks, and lists by id, unique key, tag or group are fast. Other lists scan the tasks; with a batch, they
scan only its tasks and those between them. A scan stops after a second, and the command prints where to continue.

Fields:`)
		for _, f := range search.Fields() {
			b.describe(16, f.Name, f.Meaning)
		}
	},
}

// help prints the help of a command, a noun or the program.
func help(out io.Writer, program *cli.App, line commandLine, width int) error {
	b := helpText{width: width}
	if write := helpTexts[line.text]; write != nil {
		write(&b, program)
		_, err := io.WriteString(out, b.String())
		return err
	}
	path := line.path
	usage, text, flags, commands, arguments := program.Usage, program.Description, []cli.Flag(nil), program.Commands, ""
	if len(path) > 0 {
		last := path[len(path)-1]
		usage, text, flags, commands, arguments = last.Usage, last.Description, last.Flags, last.Subcommands, last.ArgsUsage
	}
	fmt.Fprintf(&b, "%s - %s\n\nUsage:\n  %s", line.name(), usage, line.name())
	if len(commands) > 0 {
		b.WriteString(" <command>")
	}
	b.WriteString(" [flags]")
	if arguments != "" {
		b.WriteString(" " + arguments)
	}
	b.WriteString("\n")
	if text != "" {
		b.WriteString("\n")
		b.paragraphs(text)
	}
	if len(commands) > 0 {
		heading := ""
		for _, command := range commands {
			if command.Hidden {
				continue
			}
			if next := cmp.Or(command.Category, "Commands"); next != heading {
				heading = next
				fmt.Fprintf(&b, "\n%s:\n", heading)
			}
			b.describe(16, command.Name, command.Usage)
		}
		fmt.Fprintf(&b, "\nFor the help of a command: %s <command> --help\n", line.name())
	}
	b.flags("Flags", flags)
	b.WriteString("\nGlobal flags, such as --config, --database-url and --set: holdfast help flags\n")
	_, err := io.WriteString(out, b.String())
	return err
}

// helpText is a help text for a width in columns.
type helpText struct {
	strings.Builder
	width int
}

// paragraphs writes a text and wraps it again for the width. Lines that begin with a space, such as examples, stay as
// they are.
func (b *helpText) paragraphs(s string) {
	var paragraph []string
	end := func() {
		if len(paragraph) > 0 {
			b.wrapped(strings.Join(paragraph, " "), "", b.width)
			paragraph = nil
		}
	}
	for line := range strings.SplitSeq(s, "\n") {
		if line != "" && line[0] != ' ' {
			paragraph = append(paragraph, line)
			continue
		}
		end()
		b.WriteString(line + "\n")
	}
	end()
}

// wrapped writes words in lines of at most width columns, with a prefix before each line but the first.
func (b *helpText) wrapped(s, prefix string, width int) {
	column := 0
	for i, word := range strings.Fields(s) {
		switch n := utf8.RuneCountInString(word); {
		case i == 0:
			column = n
		case column+1+n > width:
			b.WriteString("\n" + prefix)
			column = n
		default:
			b.WriteString(" ")
			column += 1 + n
		}
		b.WriteString(word)
	}
	b.WriteString("\n")
}

func (b *helpText) flags(title string, flags []cli.Flag) {
	if len(flags) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", title)
	for _, flag := range flags {
		name := "--" + flag.Names()[0]
		if len(flag.Names()) > 1 {
			name = "-" + flag.Names()[1] + ", " + name
		}
		placeholder, doc := describeFlag(flag)
		if placeholder != "" {
			name += " " + placeholder
		}
		b.describe(24, name, doc)
	}
}

// describeFlag returns the placeholder and the description of a flag. For flags of the library the placeholder is the text
// in backquotes.
func describeFlag(flag cli.Flag) (placeholder, doc string) {
	switch described := flag.(type) {
	case settingFlag:
		return described.placeholder, described.doc
	case describedFlag:
		return described.placeholder, described.doc
	}
	documented, ok := flag.(cli.DocGenerationFlag)
	if !ok {
		return "", ""
	}
	doc = documented.GetUsage()
	if before, rest, ok := strings.Cut(doc, "`"); ok {
		if word, after, ok := strings.Cut(rest, "`"); ok {
			return word, before + word + after
		}
	}
	if takesValue(flag) {
		return "VALUE", doc
	}
	return "", doc
}

// describe writes a name, and a text about it in a column to the right.
func (b *helpText) describe(width int, name, text string) {
	if len(name) > width {
		name += "\n" + strings.Repeat(" ", width+2)
	}
	fmt.Fprintf(b, "  %-*s ", width, name)
	b.wrapped(text, strings.Repeat(" ", width+3), b.width-width-4)
}
