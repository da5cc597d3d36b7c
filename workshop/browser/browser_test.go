package browser

import (
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/holdfastq/holdfast/workshop/slow"
)

//go:embed testdata/axe.min.js
var axe string

var update = flag.Bool("update", os.Getenv("UPDATE_SCREENSHOTS") == "1", "write the screenshots into bin/screenshots, and those in docs/images again")

// chromium is the browser of all tests, or nil if there is none.
var chromium context.Context

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(withBrowser(m.Run))
}

// find returns the path of Chromium, or "".
func find() string {
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// withBrowser starts Chromium, calls run, and ends Chromium.
func withBrowser(run func() int) int {
	program := find()
	if program == "" {
		return run()
	}
	profile, err := os.MkdirTemp("", "holdfast-chromium-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(profile)
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.UserDataDir(profile), chromedp.Env("TMPDIR="+profile),
		chromedp.NoSandbox, // Chromium does not run as root with its sandbox
		chromedp.DisableGPU,
		chromedp.Flag("disable-dev-shm-usage", true), // it is small in containers
		chromedp.Flag("force-color-profile", "srgb"),
		chromedp.Flag("lang", "en-US"),
		chromedp.WSURLReadTimeout(slow.Times(time.Minute)),
	)...)
	defer cancel()
	ctx, cancel := chromedp.NewContext(allocator)
	defer cancel()
	if err := chromedp.Do(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "start %s: %v\n", program, err)
		return 1
	}
	chromium = ctx
	defer func() { _ = chromedp.Cancel(ctx) }() // closes the browser gracefully, and waits
	return run()
}

// needChromium ends the test if there is no Chromium.
func needChromium(t *testing.T) {
	t.Helper()
	if chromium == nil {
		missing(t, "there is no Chromium: install it (apt-get install chromium fonts-dejavu-core), or set CHROMIUM")
	}
}

// missing skips a test that lacks something. The nightly tests of the workflow lack nothing, so there it fails the test.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" && slow.All() {
		t.Fatal(what)
	}
	t.Skip(what)
}

// tab is a tab of the browser with cookies of its own.
type tab struct {
	*testing.T
	ctx context.Context
	url string // of the console, without a slash at the end

	mu       sync.Mutex
	problems []string
}

// open opens a tab. At the end of the test, everything that the browser complains about fails the test.
func open(t *testing.T, url string) *tab {
	t.Helper()
	needChromium(t)
	ctx, cancel := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	ctx, stop := context.WithTimeout(ctx, slow.Patience())
	b := &tab{T: t, ctx: ctx, url: url}
	t.Cleanup(func() { stop(); cancel() })
	t.Cleanup(b.clean)
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	// Log and Audits report only what happens after they are enabled.
	send(b, log.Enable, cdp.Empty{})
	send(b, audits.Enable, cdp.Empty{})
	send(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "UTC"})
	b.show(1440, "light")
	return b
}

// listen records what the browser complains about.
func (b *tab) listen(event any) {
	switch event := event.(type) {
	case *log.EventEntryAdded:
		if event.Entry.Level == "verbose" { // recommendations
			return
		}
		b.complain("log %s %s: %s %s", event.Entry.Source, event.Entry.Level, event.Entry.Text, event.Entry.URL)
	case *runtime.EventConsoleAPICalled:
		var args []string
		for _, a := range event.Args {
			args = append(args, string(a.Value)+a.Description)
		}
		b.complain("console %s: %s", event.Type, strings.Join(args, " "))
	case *runtime.EventExceptionThrown:
		b.complain("exception: %s", event.ExceptionDetails.Text)
	case *audits.EventIssueAdded:
		details, err := json.Marshal(event.Issue.Details)
		b.complain("issue %s: %s %v", event.Issue.Code, details, err)
	}
}

func (b *tab) complain(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
}

// take returns what the browser has complained about since the last call.
func (b *tab) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := b.problems
	b.problems = nil
	return taken
}

// clean fails the test if the browser has complained.
func (b *tab) clean() {
	b.Helper()
	for _, p := range b.take() {
		b.Errorf("the browser complains: %s", p)
	}
}

// expect removes the complaints that contain a text. They are the effect of what the test does on purpose.
func (b *tab) expect(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var rest []string
	for _, p := range b.problems {
		if !strings.Contains(p, text) {
			rest = append(rest, p)
		}
	}
	b.problems = rest
}

// show sets the width of the window and the theme.
func (b *tab) show(width int64, theme string) {
	b.Helper()
	height := int64(900)
	if width < 700 {
		height = 844
	}
	send(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
	send(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 700,
	})
}

func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.Fatalf("%v; the browser complains: %q", err, b.take())
	}
}

// visit loads a page of the console.
func (b *tab) visit(path string) {
	b.Helper()
	b.run(chromedp.Navigate(b.url + path))
}

// leave does what loads another page, and waits until it is loaded.
func (b *tab) leave(how chromedp.Action[chromedp.Void]) {
	b.Helper()
	get(b, chromedp.WaitEvent(page.LoadEventFired, nil, how))
}

// follow clicks what leads to another page, and waits until that page is loaded.
func (b *tab) follow(selector string) {
	b.Helper()
	b.leave(click(selector))
}

// click clicks an element, and keys types into one.
func click(selector string) chromedp.Action[chromedp.Void] {
	return onNode(chromedp.Click(chromedp.CSS(selector)))
}

func keys(selector, text string) chromedp.Action[chromedp.Void] {
	return onNode(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// onNode repeats an action while the browser does not know the id of its node. The browser may report a new document
// after the page has loaded, and then the ids of all nodes change. If the id is unknown, nothing was done to the node.
func onNode(action chromedp.Action[chromedp.Void]) chromedp.Action[chromedp.Void] {
	return func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		for {
			v, err := action(ctx, t)
			if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "Could not find node with given id") {
				return v, err
			}
		}
	}
}

func get[T any](b *tab, action chromedp.Action[T]) T {
	b.Helper()
	v, err := chromedp.Run(b.ctx, action)
	if err != nil {
		b.Fatalf("%v; the browser complains: %q", err, b.take())
	}
	return v
}

func send[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.Helper()
	return get(b, func(ctx context.Context, t *chromedp.Target) (R, error) { return cdp.Call(ctx, t, command, params) })
}

// strict awaits the promise of a script. By default Evaluate lifts the ban of the Content-Security-Policy on eval.
func strict(p *runtime.EvaluateParams) {
	p.AwaitPromise, p.AllowUnsafeEvalBlockedByCSP = new(true), new(false)
}

// eval returns the value of an expression in the page as a text.
func (b *tab) eval(expression string) string {
	b.Helper()
	return get(b, chromedp.Evaluate[string]("(async () => String(await ("+expression+")))()", strict))
}

// holds fails the test unless a condition of the page is true now.
func (b *tab) holds(condition string) {
	b.Helper()
	if got := b.eval(condition); got != "true" {
		b.Errorf("%s: %s\n%s", condition, got, b.eval(`document.body.innerText`))
	}
}

// wait returns when a condition of the page is true. Its mutations wake the script in the page.
func (b *tab) wait(condition string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, slow.Times(20*time.Second))
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`new Promise((done) => {
		const test = () => (`+condition+`);
		if (test()) return done(true);
		const observer = new MutationObserver(() => { if (test()) { observer.disconnect(); done(true); } });
		observer.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
	})`, strict))
	if err != nil {
		b.Fatalf("waiting for %s: %v\nthe browser complains: %q\n%s", condition, err, b.take(), b.eval(`location.href + "\n" + document.body.innerText`))
	}
}

// has is the condition that the text of an element contains a text.
func has(selector, text string) string {
	return fmt.Sprintf("(document.querySelector(%s)?.innerText ?? '').includes(%s)", quote(selector), quote(text))
}

// quote returns a text as an expression of JavaScript.
func quote(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // a text is always valid
	}
	return string(quoted)
}
