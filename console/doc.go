// Package console is the web console: pages for the people who run Holdfast. It is an http.Handler, rendered by the
// server. Every page is a GET that works without JavaScript, and every change is a form.
//
// # How a page is made
//
//  1. [Console.ServeHTTP] sets the security headers, finds the route and authenticates the caller, as the HTTP API does;
//     see package access.
//  2. The load function of the page reads what the page shows, with the functions that the API and the command line use,
//     and returns a view: a struct with what the template prints.
//  3. The template of the page renders the view inside the layout. html/template escapes every value by its context.
//
// The table in pages.go has every page. To add a page, add a line there, a load function and a template.
//
// # Changes
//
// A form is sent to /do/NAME, where NAME is the operation of the HTTP API, such as retryTask; see actions.go. The console
// makes the request of the API from the form and serves it with the caller of the session. So a change in the console
// needs the same role, passes the same checks, records the same audit entry and fails with the same problem as a request.
//
// The form that edits a task is sent to its own page, which first shows what would change; see edit.go. The form of a
// schedule is also sent to its own page, which first shows the next run times; see scheduleform.go. The page that plans
// an operation uses the dry run of the API; see plan.go. The form that creates a token is answered by the page with its
// secret, and the form that changes a setting keeps what was typed if the API refuses it; see tokens.go and
// settings.go.
//
// # Live pages
//
// A page is also a stream of server-sent events, at the same URL. The stream has the part main of the page whenever it
// has changed; see live.go. All viewers with the same URL and the same role share one computation. The script of the
// console puts the new values into the page and leaves its rows where they are.
package console
