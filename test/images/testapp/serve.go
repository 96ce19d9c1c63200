package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// options are the flags of "testapp serve".
type options struct {
	listen     string
	dir        string
	unready    bool
	startDelay time.Duration
	stopDelay  time.Duration
	stopCode   int
	logEvery   time.Duration
}

// app is the server's state. Requests change it.
type app struct {
	opts     options
	healthy  atomic.Bool
	ready    atomic.Bool
	exit     chan int
	mu       sync.Mutex
	memory   [][]byte
	requests atomic.Int64
}

// serve runs the HTTP server until SIGTERM, SIGINT or a request for /exit. Paths:
//
//	/                     files of --dir
//	/healthz /readyz      200, or 503 after POST …?ok=false
//	/exit?code=N          ends the process
//	/alloc?mib=N          keeps that much more memory
//	/log?text=T&n=N       writes N lines
//	/sleep?for=D          answers after D
//	/redirect?to=URL      answers 302
//	/status?code=N        answers with that code
//	/echo                 method, path, host and headers of the request
//	/env?name=N           one environment variable
//	/count                requests answered so far
func serve(args []string) error {
	var opts options
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.StringVar(&opts.listen, "listen", ":8080", "address")
	flags.StringVar(&opts.dir, "dir", "/www", "folder to serve")
	flags.BoolVar(&opts.unready, "unready", false, "start with /readyz failing")
	flags.DurationVar(&opts.startDelay, "start-delay", 0, "listen only after this time")
	flags.DurationVar(&opts.stopDelay, "stop-delay", 0, "go on this long after SIGTERM")
	flags.IntVar(&opts.stopCode, "stop-code", 0, "exit code after SIGTERM")
	flags.DurationVar(&opts.logEvery, "log-every", 0, "write a line this often")
	if err := flags.Parse(args); err != nil {
		return err
	}
	a := &app{opts: opts, exit: make(chan int, 1)}
	a.healthy.Store(true)
	a.ready.Store(!opts.unready)
	return a.run()
}

func (a *app) run() error {
	caught := signals()
	select {
	case <-time.After(a.opts.startDelay):
	case s := <-caught:
		fmt.Println("signal", s, "before the start")
		return exitError(a.opts.stopCode)
	}
	server := &http.Server{Addr: a.opts.listen, Handler: a.handler(), ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	fmt.Println("serving", a.opts.dir, "on", a.opts.listen)

	var tick <-chan time.Time
	if a.opts.logEvery > 0 {
		tick = time.Tick(a.opts.logEvery)
	}
	var end <-chan time.Time
	for n := 1; ; {
		select {
		case err := <-failed:
			return err
		case code := <-a.exit:
			return exitError(code)
		case <-tick:
			fmt.Println("tick", n)
			n++
		case s := <-caught:
			fmt.Println("signal", s)
			if end == nil && (s == syscall.SIGTERM || s == syscall.SIGINT) {
				end = time.After(a.opts.stopDelay)
			}
		case <-end:
			fmt.Println("stopped")
			_ = server.Shutdown(context.Background())
			return exitError(a.opts.stopCode)
		}
	}
}

func (a *app) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(a.opts.dir)))
	mux.HandleFunc("/healthz", gate(&a.healthy))
	mux.HandleFunc("/readyz", gate(&a.ready))
	mux.HandleFunc("/exit", func(_ http.ResponseWriter, r *http.Request) { a.exit <- number(r, "code", 0) })
	mux.HandleFunc("/alloc", a.alloc)
	mux.HandleFunc("/log", func(_ http.ResponseWriter, r *http.Request) {
		for range number(r, "n", 1) {
			fmt.Println(r.FormValue("text"))
		}
	})
	mux.HandleFunc("/sleep", func(_ http.ResponseWriter, r *http.Request) {
		d, _ := time.ParseDuration(r.FormValue("for"))
		select {
		case <-time.After(d):
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/redirect",
		func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.FormValue("to"), http.StatusFound) })
	mux.HandleFunc("/status",
		func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(number(r, "code", http.StatusOK)) })
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/env",
		func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, os.Getenv(r.FormValue("name"))) })
	mux.HandleFunc("/count", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, a.requests.Load()) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.requests.Add(1)
		mux.ServeHTTP(w, r)
	})
}

// gate answers 200 while the value is true, and 503 while it is false. A POST sets it to ok.
func gate(value *atomic.Bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			value.Store(r.FormValue("ok") != "false")
			return
		}
		if !value.Load() {
			http.Error(w, "not ok", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}

func (a *app) alloc(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.memory = append(a.memory, take(number(r, "mib", 1)))
	fmt.Fprintln(w, "blocks", len(a.memory))
}

func echo(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintln(w, r.Method, r.URL.RequestURI())
	fmt.Fprintln(w, "Host:", r.Host)
	_ = r.Header.Write(w)
}

func number(r *http.Request, name string, fallback int) int {
	n, err := strconv.Atoi(r.FormValue(name))
	if err != nil {
		return fallback
	}
	return n
}
