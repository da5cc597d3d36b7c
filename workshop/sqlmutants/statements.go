package sqlmutants

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
)

// folders have the files with statements that the SQLite adapter executes: those that both adapters share, and its own.
var folders = []string{"store/internal/roles", "store/internal/flow", "store/desk", "store/sqlite/sql"}

// heading begins a statement, or a part that statements include.
var heading = regexp.MustCompile(`(?m)^-- (?:name: (\w+)|\{\{(\w+)\}\}.*)$`)

// section is a statement or a part of statements in a file.
type section struct {
	file     string // relative to the root of the module
	size     int    // of the file
	name     string
	from, to int // its place in the file
	text     string
}

// sections returns the statements in the files with the name, in both folders. It returns an error if there is no such
// file.
func sections(root, name string) (list []section, err error) {
	found := false
	for _, folder := range folders {
		file := path.Join(folder, name+".sql")
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = true
		list = append(list, split(file, name, string(text))...)
	}
	if !found {
		return nil, fmt.Errorf("no folder of %v has %s.sql", folders, name)
	}
	return list, nil
}

// split returns the statements of a file. A file without headings is one statement with the name of the file.
func split(file, name, text string) (list []section) {
	at := heading.FindAllStringSubmatchIndex(text, -1)
	if len(at) == 0 {
		return []section{{file, len(text), name, 0, len(text), text}}
	}
	for i, match := range at {
		to := len(text)
		if i+1 < len(at) {
			to = at[i+1][0]
		}
		first := max(match[2], match[4])
		list = append(list, section{file, len(text), text[first:max(match[3], match[5])], match[1], to, text[match[1]:to]})
	}
	return list
}

// tableParts returns the names of the parts with a where clause at their top level. A name with " and" means that the
// part ends in this clause, so that the statement continues it with a condition.
func tableParts(parts []section) (map[string]bool, error) {
	names := make(map[string]bool)
	for _, part := range parts {
		tokens, err := tokenize(part.text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", part.name, err)
		}
		f := finder{tokens: tokens}
		for i := 0; i < len(tokens); i = f.next(i) {
			if tokens[i].is("where") {
				names[part.name] = true
			}
		}
		if n := len(tokens); n > 0 && names[part.name] && tokens[n-1].is("where", "and") {
			names[part.name+" and"] = true
		}
	}
	return names, nil
}

// located is a mutant with the file that has its statement.
type located struct {
	Mutant
	file string
	size int // of the file
}

// mutantsOf returns the mutants of a role.
func mutantsOf(root string, r role) (list []located, err error) {
	parts, err := sections(root, "parts")
	if err != nil {
		return nil, err
	}
	tables, err := tableParts(parts)
	if err != nil {
		return nil, err
	}
	statements, err := sections(root, r.name)
	if err != nil {
		return nil, err
	}
	chosen, err := choose(r, statements, parts)
	if err != nil {
		return nil, err
	}
	for _, s := range chosen {
		found, err := mutants(s.name, s.text, tables)
		if err != nil {
			return nil, err
		}
		for _, m := range found {
			m.from, m.to = m.from+s.from, m.to+s.from
			list = append(list, located{m, s.file, s.size})
		}
	}
	return list, nil
}

// choose returns the statements and the parts of a role. It returns an error if one that the role names is missing.
func choose(r role, statements, parts []section) (chosen []section, err error) {
	for _, s := range statements {
		if len(r.only) == 0 {
			chosen = append(chosen, s)
		}
	}
	for _, wanted := range []struct {
		names []string
		in    []section
	}{{r.only, statements}, {r.parts, append(parts, statements...)}} {
		for _, name := range wanted.names {
			before := len(chosen)
			for _, s := range wanted.in {
				if s.name == name {
					chosen = append(chosen, s)
				}
			}
			if len(chosen) == before {
				return nil, fmt.Errorf("role %s: there is no statement or part %s", r.name, name)
			}
		}
	}
	return chosen, nil
}
