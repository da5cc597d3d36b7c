package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/contain"
	"github.com/holdfastq/holdfast/internal/search"
)

// topOptions are the parts of a screen that need a terminal or a store. Tests have others.
type topOptions struct {
	every  time.Duration
	colors bool
	// begin prepares a reading. The caller calls the function read once, in any goroutine. cancel ends the reading.
	begin   func(topWant) (read func() topReading, cancel context.CancelFunc)
	page    func(t *topTask, width int, unfolded bool) []string // the lines of the page of a task
	message func(error) string
}

// topPlace is a place to which the keys lead: a table or a page. A place keeps its state until the user leaves it.
type topPlace struct {
	want  topWant
	title string

	filter     string // only rows with this text
	sort       string // head of the column; "" for the order of the store
	descending bool
	selected   string // id of the row
	row        int    // index of the selected row, or the first line of a page
	top        int    // first row on the screen
	unfolded   bool   // the whole payload

	data *topReading // nil before the first reading
}

// topModel is the state of the screen. Only the event loop of the library calls its methods.
type topModel struct {
	o             topOptions
	width, height int
	roots         [4]*topPlace // the places of the keys 1 to 4
	path          []*topPlace  // from a root to the present place
	head          topHead
	meter         topMeter

	seq     int                // number of the newest reading
	cancel  context.CancelFunc // ends it
	readAt  time.Time          // of the newest reading that succeeded
	away    time.Time          // of the first reading that failed; zero after a success
	problem string             // why
	paused  bool
	prompt  *topPrompt // the filter that the user types, or nil

	table topTable // of the present place
	lines []string // of the present page
}

// topPrompt is the line in which the user types a filter.
type topPrompt struct {
	text   string
	before string // the filter before
	err    *search.SyntaxError
}

// topTick requests the next reading, unless another one has begun.
type topTick struct{ seq int }

// newTopModel returns a screen that shows the queues.
func newTopModel(o topOptions) *topModel {
	m := &topModel{o: o, width: 80, height: 24}
	for i, title := range []string{"queues", "workers", "dead groups", "tasks"} {
		m.roots[i] = &topPlace{want: topWant{view: topView(i)}, title: title}
	}
	m.path = []*topPlace{m.roots[0]}
	return m
}

// stop ends the reading in progress.
func (m *topModel) stop() {
	if m.cancel != nil {
		m.cancel()
	}
}

// place returns the present place.
func (m *topModel) place() *topPlace { return m.path[len(m.path)-1] }

// isTable reports whether the present place is a table, and not a page.
func (m *topModel) isTable() bool { return m.place().want.view <= viewTasks }

// searches reports whether the filter of the present place is a search.
func (m *topModel) searches() bool { return m.place().want.view == viewTasks }

// Init implements tea.Model.
func (m *topModel) Init() tea.Cmd { return m.refresh() }

// refresh begins a reading for the present place, and ends an earlier one.
func (m *topModel) refresh() tea.Cmd {
	m.stop()
	m.seq++
	seq := m.seq
	read, cancel := m.o.begin(m.place().want)
	m.cancel = cancel
	return func() tea.Msg {
		r := read()
		r.seq = seq
		return r
	}
}

// Update implements tea.Model.
func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var command tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case topTick:
		if msg.seq == m.seq && !m.paused {
			return m, m.refresh()
		}
	case topReading:
		if msg.seq != m.seq { // the user has left the place
			return m, nil
		}
		command = m.receive(msg)
	case tea.PasteMsg:
		if m.prompt != nil {
			m.typed(m.prompt.text + singleLine(msg.Content))
		}
	case tea.KeyPressMsg:
		if m.prompt != nil {
			command = m.keyInPrompt(msg)
		} else {
			command = m.key(msg.String())
		}
	default:
		return m, nil
	}
	m.arrange()
	return m, command
}

// receive takes a reading, and returns the command for the next one.
func (m *topModel) receive(r topReading) tea.Cmd {
	if r.err != nil {
		if _, panicked := errors.AsType[*holdfast.PanicError](r.err); !panicked && m.away.IsZero() {
			m.away = r.at
		}
		m.problem = m.o.message(r.err)
	} else {
		m.away, m.problem, m.readAt = time.Time{}, "", r.at
		m.head = r.head
		m.meter.add(r.sample)
		m.place().data = &r
	}
	if m.paused {
		return nil
	}
	const share = 10 // a reading may take at most this part of the time
	pause := max(m.o.every-r.took, (share-1)*r.took)
	if r.err != nil {
		pause = m.o.every
	}
	return tea.Tick(pause, func(time.Time) tea.Msg { return topTick{r.seq} })
}

// arrange computes the rows or lines of the present place, and keeps the selection on its row. If it panics because of
// a stored value, the place is empty until the next reading.
func (m *topModel) arrange() {
	if err := contain.Call(func() error { m.arrangePlace(); return nil }); err != nil {
		m.table, m.lines, m.place().data = topTable{}, nil, nil
		m.problem = m.o.message(err)
	}
}

func (m *topModel) arrangePlace() {
	p := m.place()
	if !m.isTable() {
		m.lines = m.pageLines()
		p.row = max(0, min(p.row, len(m.lines)-m.rows()))
		return
	}
	m.table = m.tableOf(p)
	if p.filter != "" {
		m.table.filter(p.filter)
	}
	if p.sort != "" {
		m.table.sort(p.sort, p.descending)
	}
	if i := slices.IndexFunc(m.table.rows, func(row topRow) bool { return row.id == p.selected }); i >= 0 {
		p.row = i
	}
	m.choose(p.row)
}

// tableOf returns the table of a place.
func (m *topModel) tableOf(p *topPlace) topTable {
	data := p.data
	if data == nil {
		data = &topReading{}
	}
	switch p.want.view {
	case viewQueues:
		return queueTable(data.queues, &m.meter)
	case viewWorkers:
		return workerTable(data.workers, data.at)
	case viewGroups:
		return groupTable(data.groups, data.at)
	}
	return taskTable(data.tasks, data.at)
}

// choose selects a row, and scrolls to it.
func (m *topModel) choose(row int) {
	p, n := m.place(), m.rows()
	p.row = max(0, min(row, len(m.table.rows)-1))
	if len(m.table.rows) > 0 {
		p.selected = m.table.rows[p.row].id
	}
	p.top = max(0, min(p.top, p.row, len(m.table.rows)-n))
	p.top = max(p.top, p.row-n+1)
}

// move moves the selection, or scrolls a page, by a number of rows.
func (m *topModel) move(by int) {
	if m.isTable() {
		m.choose(m.place().row + by)
	} else {
		m.place().row += by
	}
}

// key executes the function of a key.
func (m *topModel) key(name string) tea.Cmd {
	const far = 1 << 30
	p := m.place()
	switch name {
	case "q", "ctrl+c":
		return tea.Quit
	case "ctrl+z":
		return tea.Suspend
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup", "ctrl+b":
		m.move(-m.rows())
	case "pgdown", "ctrl+f", "space":
		m.move(m.rows())
	case "home", "g":
		m.move(-far)
	case "end", "G":
		m.move(far)
	case "1", "2", "3", "4":
		m.path = []*topPlace{m.roots[name[0]-'1']}
		return m.refresh()
	case "tab":
		next := (int(m.path[0].want.view) + 1) % len(m.roots)
		m.path = []*topPlace{m.roots[next]}
		return m.refresh()
	case "enter", "right", "l":
		return m.enter()
	case "esc", "left", "h", "backspace":
		return m.back()
	case "/":
		if m.isTable() {
			m.prompt = &topPrompt{text: p.filter, before: p.filter}
			if m.searches() {
				m.prompt.text = p.want.query
			}
		}
	case "s":
		m.sortByNext()
	case "S":
		p.descending = !p.descending
	case "p":
		m.paused = !m.paused
		if !m.paused {
			return m.refresh()
		}
	case "r":
		return m.refresh()
	case "?":
		m.path = append(m.path, &topPlace{want: topWant{view: viewHelp}, title: "keys"})
	}
	return nil
}

// enter opens the selected row, or shows the whole payload of a task.
func (m *topModel) enter() tea.Cmd {
	p := m.place()
	if !m.isTable() {
		p.unfolded = !p.unfolded
		return nil
	}
	if len(m.table.rows) == 0 || m.table.rows[p.row].open.title == "" {
		return nil
	}
	opened := m.table.rows[p.row].open
	m.path = append(m.path, &opened)
	return m.refresh()
}

// back leaves the present place. In a root it removes the filter.
func (m *topModel) back() tea.Cmd {
	if len(m.path) > 1 {
		m.path = m.path[:len(m.path)-1]
		return m.refresh()
	}
	p := m.place()
	p.filter = ""
	if p.want.query == "" {
		return nil
	}
	p.want.query, p.data = "", nil
	return m.refresh()
}

// sortByNext sorts by the next column on the screen, and after the last one in the order of the store. Numbers are
// first sorted with the largest at the top.
func (m *topModel) sortByNext() {
	if !m.isTable() {
		return
	}
	p := m.place()
	columns := m.shownColumns()
	next := slices.IndexFunc(columns, func(c shownColumn) bool { return c.head == p.sort }) + 1
	if next == len(columns) {
		p.sort = ""
		return
	}
	p.sort, p.descending = columns[next].head, columns[next].numeric
}

// keyInPrompt executes the function of a key while the user types a filter.
func (m *topModel) keyInPrompt(key tea.KeyPressMsg) tea.Cmd {
	p := m.prompt
	switch key.String() {
	case "ctrl+c":
		return tea.Quit
	case "esc":
		m.typed(p.before)
		m.prompt = nil
	case "enter":
		return m.apply()
	case "backspace":
		if runes := []rune(p.text); len(runes) > 0 {
			m.typed(string(runes[:len(runes)-1]))
		}
	case "ctrl+w":
		words := strings.TrimRightFunc(p.text, unicode.IsSpace)
		m.typed(words[:strings.LastIndexFunc(words, unicode.IsSpace)+1])
	case "ctrl+u":
		m.typed("")
	default:
		m.typed(p.text + key.Text)
	}
	return nil
}

// typed sets the text of the prompt. A filter that is not a search has an effect at once.
func (m *topModel) typed(text string) {
	m.prompt.text, m.prompt.err = text, nil
	if !m.searches() {
		m.place().filter = text
	}
}

// apply ends the prompt. A search with an error stays.
func (m *topModel) apply() tea.Cmd {
	p := m.place()
	text := strings.TrimSpace(m.prompt.text)
	if !m.searches() {
		m.prompt = nil
		return nil
	}
	if _, err := search.Parse(text, time.Now()); err != nil {
		m.prompt.err, _ = errors.AsType[*search.SyntaxError](err)
		return nil
	}
	m.prompt = nil
	p.want.query, p.data = text, nil
	return m.refresh()
}
